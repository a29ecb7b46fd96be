// The logits of a token depend only on the model and the tokens up to it, bit for bit.
#include <cmath>
#include <cstring>
#include <random>

#include "engine/pages/kv_cache.h"
#include "engine/quantize/quantize.h"
#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "engine/session/pass.h"
#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/base/checksum.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// A model of every kind: each architecture, floats of odd sizes, windows, scalings, block formats.
std::vector<std::string> models() {
  std::vector<std::string> out{
      golden("gguf/tiny_llama_q4_0.gguf"), golden("gguf/tiny_llama_mixed.gguf"),
      golden("gguf/tiny_llama_floats.gguf"), golden("gguf/tiny_llama_grids.gguf"), ""};
  for (const std::string& model : golden_models()) out.push_back(model);
  return out;
}

std::shared_ptr<Engine> open_exact(const std::string& model, int threads = 2,
                                   Format kv = Format::f16) {
  EngineOptions o;
  o.model = model, o.threads = threads, o.threads_fixed = true, o.kv = kv;
  return Engine::open(o);
}

// The logits of all tokens, which are appended in chunks.
std::vector<float> logits_in_chunks(Session& s, std::span<const TokenId> tokens, size_t chunk) {
  std::vector<float> out;
  for (size_t i = 0; i < tokens.size(); i += chunk) {
    const auto part = tokens.subspan(i, std::min(chunk, tokens.size() - i));
    const auto logits = s.extend(part, int(part.size()));
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

int length_for(const Engine& e) { return std::min(e.context_length(), 60); }

}  // namespace

TEST_CASE("exact: any number of threads") {
  for (const std::string& m : models()) {
    CAPTURE(m);
    std::vector<float> first;
    for (int threads : {1, 2, 3, 7}) {
      const auto e = open_exact(m, threads);
      const auto t = tokens_for(*e, length_for(*e));
      const auto logits = logits_in_chunks(*e->session(), t, t.size());
      if (first.empty()) first = logits;
      CHECK(same(first, logits));
    }
  }
}

TEST_CASE("exact: any chunking of the prompt, with every KV format") {
  for (const std::string& m : models())
    for (const KvType& kv : kKvTypes) {
      CAPTURE(m);
      CAPTURE(kv.name);
      const auto e = open_exact(m, 2, kv.format);
      const auto t = tokens_for(*e, length_for(*e));
      const auto whole = logits_in_chunks(*e->session(), t, t.size());
      for (size_t chunk : {1, 8, 16, 32})
        CHECK(same(whole, logits_in_chunks(*e->session(), t, chunk)));
    }
}

TEST_CASE("exact: long contexts cross pages, chunks of attention and batches") {
  const auto e = open_exact("");
  const auto t = tokens_for(*e, std::min(e->context_length(), 500));
  const auto whole = logits_in_chunks(*e->session(), t, t.size());
  CHECK(same(whole, logits_in_chunks(*e->session(), t, 1)));
  CHECK(same(whole, logits_in_chunks(*e->session(), t, 37)));
}

TEST_CASE("exact: alone or in a batch with other sessions") {
  for (const std::string& m : models()) {
    CAPTURE(m);
    const auto e = open_exact(m);
    const auto t = tokens_for(*e, 24);
    const auto alone = logits_in_chunks(*e->session(), t, t.size());
    auto a = e->session(), b = e->session(), c = e->session();
    b->extend(std::span(t).subspan(5, 9));
    const Extension parts[] = {{.session = c.get(), .tokens = std::span(t).first(3)},
                               {.session = a.get(), .tokens = t, .wanted = int(t.size())},
                               {.session = b.get(), .tokens = std::span(t).first(7)}};
    const auto all = extend_all(parts);
    CHECK(same(alone, all.subspan(size_t(e->vocab_size()), alone.size())));
  }
}

TEST_CASE("exact: rewound, forked and fresh sessions") {
  const auto e = open_exact("");
  const auto t = tokens_for(*e, 50);
  const auto fresh = logits_in_chunks(*e->session(), t, t.size());
  const std::span<const float> last = std::span(fresh).last(size_t(e->vocab_size()));
  auto s = e->session();
  s->extend(std::span(t).first(21));
  s->extend(std::vector<TokenId>(25, 3));
  s->rewind(21);
  CHECK(same(last, s->extend(std::span(t).subspan(21))));
  s->rewind(37);
  auto f = s->fork();
  s->extend(std::vector<TokenId>(10, 5));  // writes into the shared page
  CHECK(same(last, f->extend(std::span(t).subspan(37))));
  // The tokens that the first session wrote there are unchanged.
  std::vector<TokenId> other(t.begin(), t.begin() + 37);
  other.insert(other.end(), 10, 5);
  other.push_back(7);
  const auto alone = logits_in_chunks(*e->session(), other, other.size());
  CHECK(same(std::span(alone).last(size_t(e->vocab_size())), s->decode(7)));
  s->rewind(37);
  const auto rest = s->reuse(t);
  CHECK(s->position() == 48);  // its whole pages are in the prefix index
  CHECK(same(last, s->extend(rest)));
}

TEST_CASE("exact: every instruction set, and the same text") {
  for (const std::string& m : models()) {
    CAPTURE(m);
    std::vector<float> first;
    for (const Backend* backend : cpu_backends()) {
      setenv("CHASKI_ISA", backend->name, 1);
      const auto e = open_exact(m);
      unsetenv("CHASKI_ISA");
      CHECK(e->isa() == backend->name);
      const auto t = tokens_for(*e, 24);
      const auto logits = logits_in_chunks(*e->session(), t, t.size());
      if (first.empty()) first = logits;
      CHECK(same(first, logits));
    }
  }
}

TEST_CASE("exact: a session from a file is the session that was saved") {
  const TempFolder tmp;
  for (const std::string& m : models())
    for (const KvType& kv : kKvTypes) {
      CAPTURE(m);
      CAPTURE(kv.name);
      const auto e = open_exact(m, 2, kv.format);
      const auto t = tokens_for(*e, length_for(*e));
      const size_t half = t.size() / 2;
      const auto cold = logits_in_chunks(*e->session(), t, t.size());
      const std::span<const float> last = std::span(cold).last(size_t(e->vocab_size()));
      const auto s = e->session();
      s->extend(std::span(t).first(half));
      const uint64_t bytes = s->save(tmp / "kv");
      CHECK(bytes == std::filesystem::file_size(tmp / "kv"));
      CHECK(Session::is_saved(tmp / "kv"));
      // Restored by another engine, as in another process, into a session with other tokens.
      const auto other = open_exact(m, 1, kv.format);
      const auto restored = other->session();
      restored->extend(std::span(t).subspan(3, 9));
      restored->restore(tmp / "kv");
      CHECK(std::ranges::equal(restored->tokens(), std::span(t).first(half)));
      const auto copy = restored->fork();
      CHECK(same(last, restored->extend(std::span(t).subspan(half))));
      CHECK(same(last, copy->extend(std::span(t).subspan(half))));
    }
}

TEST_CASE(
    "exact: sliding windows without their beginning are restored from a file, and rewind equally "
    "far") {
  const TempFolder tmp;
  EngineOptions o;
  o.model = golden("models/gemma3"), o.context = 2048, o.threads = 2;
  const auto e = Engine::open(o);
  const auto t = tokens_for(*e, 1800);
  const auto s = e->session();
  s->extend(std::span(t).first(1700), 0);
  s->save(tmp / "kv");
  const auto restored = e->session();
  restored->restore(tmp / "kv");
  const auto want = logits_in_chunks(*s, std::span(t).subspan(1700), 100);
  CHECK(same(want, logits_in_chunks(*restored, std::span(t).subspan(1700), 7)));
  CHECK(restored->rewind(1000) == s->rewind(1000));
}

TEST_CASE(
    "engine: a saved session that is damaged or of another model is refused, and the session is "
    "empty") {
  const TempFolder tmp;
  const auto e = open_exact("");
  const auto t = tokens_for(*e, 40);
  const auto s = e->session();
  s->extend(t);
  s->save(tmp / "kv");
  const std::string good = read_file(tmp / "kv");
  const auto refused = [&](Engine& engine, const std::string& bytes) {
    write_file(tmp / "other", bytes);
    const auto session = engine.session();
    session->extend(tokens_for(engine, 9));
    const Error error = error_of([&] { session->restore(tmp / "other"); });
    CHECK(session->position() == 0);
    CHECK(error.code == Exit::bad_file);
    return std::string(error.what());
  };
  for (size_t at = 0; at < good.size(); at += at < 300 ? 1 : 997) {
    std::string damaged = good;
    damaged[at] ^= 4;
    const std::string line = refused(*e, damaged);
    CHECK_MESSAGE(contains(line, at < 7    ? "not a file of keys and values"
                                 : at == 7 ? "version 0, expected at most 4"
                                           : "checksum does not match"),
                  line);
  }
  for (const size_t size : {7, 15, 16, 200, int(good.size()) - 1})
    CHECK_FALSE(refused(*e, good.substr(0, size)).empty());
  CHECK(contains(refused(*open_exact(golden("models/gpt2")), good), "of another model"));
  CHECK(contains(refused(*open_exact("", 1, Format::f32), good), "are in f16, expected f32"));
  // Earlier versions stored f16 as version 3 does, and q8 otherwise. Version 2 stored f8 the same.
  // Before version 4 nothing followed the pages.
  const auto as_version = [](char version, std::string bytes) {
    bytes[7] = version;
    bytes.resize(bytes.size() - sizeof(uint64_t));
    const uint64_t sum = checksum(bytes.data() + 16, bytes.size() - 16);
    std::memcpy(bytes.data() + 8, &sum, sizeof sum);
    return bytes;
  };
  for (const char version : {1, 2, 3}) {
    write_file(tmp / "earlier", as_version(version, good));
    const auto restored = e->session();
    restored->restore(tmp / "earlier");
    CHECK(restored->position() == s->position());
  }
  const auto in_q8 = open_exact("", 1, Format::q8);
  const auto short_form = in_q8->session();
  short_form->extend(t);
  short_form->save(tmp / "q8");
  const std::string q8 = read_file(tmp / "q8");
  for (const char version : {1, 2})
    CHECK(contains(refused(*in_q8, as_version(version, q8)),
                   "an earlier chaski stored its keys in another form of q8"));
  const auto in_f8 = open_exact("", 1, Format::f8), again = open_exact("", 1, Format::f8);
  const auto floats = in_f8->session();
  floats->extend(t);
  floats->save(tmp / "f8");
  write_file(tmp / "f8", as_version(2, read_file(tmp / "f8")));
  again->session()->restore(tmp / "f8");
  CHECK(contains(refused(*again, as_version(1, read_file(tmp / "f8"))), "another form of f8"));
  EngineOptions o;
  o.context = 100;
  CHECK(contains(refused(*Engine::open(o), good),
                 "made in a context of 512 tokens, expected 100 (-c 512 "));
  o.context = 0, o.rope_scaling = "linear:2";
  CHECK(contains(refused(*Engine::open(o), good), "of another model"));
}

TEST_CASE("exact: text with a draft is the text without, greedy and sampled") {
  TempFolder tmp;
  QuantizeOptions q4;
  quantize_model("", tmp / "draft.quipu", q4, {});
  const auto target = open_exact(""), draft = open_exact(tmp / "draft.quipu");
  const auto prompt = target->tokenizer().encode_prompt("Once upon a time there was a");
  int accepted = 0;
  for (double temperature : {0.0, 0.8}) {
    GenerateOptions plain;
    plain.max_tokens = 80, plain.sampling.temperature = temperature, plain.sampling.seed = 11,
    plain.ignore_end = true;
    const auto want = generate(*target->session(), prompt, plain, [](std::string_view) {});
    for (int k : {1, 4, 9}) {
      const auto drafter = model_drafter(draft, *target, plain.sampling);
      GenerateOptions with = plain;
      with.drafter = drafter.get(), with.draft_length = k;
      const auto got = generate(*target->session(), prompt, with, [](std::string_view) {});
      CHECK(got.text == want.text);
      CHECK(got.tokens == want.tokens);
      CHECK(got.passes < want.passes);
      accepted += got.accepted;
    }
  }
  CHECK(accepted > 100);
}

TEST_CASE("exact: draws with a draft tree are the draws without a draft") {
  std::mt19937 random(3);
  int branches = 0;
  for (const std::string& m : models())
    for (const double temperature : {0.0, 0.9}) {
      CAPTURE(m);
      CAPTURE(temperature);
      const auto e = open_exact(m);
      const bool recurrent =
          std::ranges::any_of(e->kv_cache().states.pools, &StateLayout::Pool::recurrent);
      const auto t = tokens_for(*e, length_for(*e) / 3);
      SamplerOptions o;
      o.temperature = temperature, o.seed = 6;
      Sampler sampler(o);
      const auto one = e->session(), many = e->session();
      std::vector<TokenId> want = one->draw(t, sampler), got = many->draw(t, sampler);
      while (want.size() < t.size() + 1)
        want.push_back(one->draw(std::span(want).last(1), sampler)[0]);
      while (got.size() < want.size()) {
        // A tree with the accepted tokens on one path, among wrong ones.
        Draft draft;
        int right = -1;
        for (size_t at = got.size(); draft.nodes.size() < 7;) {
          const int other = int(random() % (draft.nodes.size() + 1)) - 1;
          if (at < want.size() && random() % 2)
            right = draft.add(want[at++], right);
          else
            draft.add(TokenId(random() % unsigned(e->vocab_size())), other);
        }
        // The last token, and those that a recurrent state lost with a wrong draft.
        std::vector<TokenId> rest(t);
        rest.insert(rest.end(), got.begin(), got.end());
        rest.erase(rest.begin(), rest.begin() + many->position());
        const size_t room = size_t(many->room()) - rest.size();
        if (draft.nodes.size() > room) draft.nodes.resize(room);
        draft.keep_branches(many->branches(int(rest.size() + draft.nodes.size())));
        const std::vector<TokenId> drawn = many->draw(rest, sampler, draft.nodes);
        size_t n = 0;
        for (int i = -1; n < drawn.size(); ++n) {
          const auto next =
              std::find(draft.nodes.begin(), draft.nodes.end(), Draft::Node{drawn[n], i});
          if (next == draft.nodes.end()) break;
          const bool branches_off = next - draft.nodes.begin() != i + 1;
          i = int(next - draft.nodes.begin()), branches += branches_off;
        }
        CHECK(n + 1 == drawn.size());
        got.insert(got.end(), drawn.begin(), drawn.end());
        const int read = int(t.size() + got.size()) - 1;
        REQUIRE((recurrent ? many->position() <= read : many->position() == read));
      }
      got.resize(want.size());
      REQUIRE(got == want);
      std::vector<TokenId> text(t);
      text.insert(text.end(), want.begin(), want.end() - 1);
      const int read = std::min(many->position(), int(text.size()));
      if (const int held = many->rewind(read); held < int(text.size())) {
        CHECK(recurrent);
        many->extend(std::span(text).subspan(size_t(held)));
      }
      CHECK(many->tokens() == one->tokens());
      const auto logits = one->decode(want.back());
      const std::vector<float> last(logits.begin(), logits.end());
      CHECK(same(last, many->decode(want.back())));
    }
  CHECK(branches > 100);
}

TEST_CASE(
    "exact: branches copy the partly filled page that they share, and the accepted one copies "
    "none") {
  const auto e = open_exact("");
  const KvPool& pool = e->kv_cache().pools[0];
  const auto t = tokens_for(*e, 40);
  Sampler sampler({}, nullptr);
  for (const int at : {20, 32}) {
    const auto one = e->session(), many = e->session();
    const auto front = std::span(t).first(size_t(at)), last = std::span(t).subspan(size_t(at), 1);
    one->extend(front, 0), many->extend(front, 0);
    std::vector<TokenId> want = one->draw(last, sampler);
    while (want.size() < 14) want.push_back(one->draw(std::span(want).last(1), sampler)[0]);
    Draft draft;
    draft.add(std::vector<TokenId>{want[0] ^ 1, want[1]});
    draft.add(std::vector<TokenId>{want[0] ^ 2, want[1]});
    draft.add(std::span(want).first(13));
    const int64_t before = pool.copies(), held = pool.in_use();
    CHECK(many->draw(last, sampler, draft.nodes) == want);
    // Each branch but the first copies a page in which 4 of 16 cells are filled.
    CHECK(pool.copies() - before == (at == 20 ? 2 : 0));
    CHECK(pool.in_use() == held + 1);
    CHECK(many->tokens() == one->tokens());
    CHECK(many->draw(std::span(want).last(1), sampler) ==
          one->draw(std::span(want).last(1), sampler));
    CHECK(pool.copies() - before == (at == 20 ? 2 : 0));
  }
}

TEST_CASE("engine: a prompt that does not fit is refused and changes nothing") {
  const auto e = open_exact(golden("models/gpt2"));
  auto s = e->session();
  const auto t = tokens_for(*e, e->context_length());
  s->extend(std::span(t).first(20));
  CHECK_THROWS_AS(s->extend(t), const Error&);
  CHECK(s->position() == 20);
  s->extend(std::span(t).subspan(20));
  CHECK(s->room() == 0);
}

TEST_CASE("engine: a pass that fails leaves sessions and their forks as they were") {
  const auto e = open_exact("");
  const auto t = tokens_for(*e, 40);
  auto s = e->session();
  s->extend(std::span(t).first(16));
  CHECK_THROWS_AS(s->extend(std::vector<TokenId>(size_t(e->context_length()), 1)), const Error&);
  auto f = s->fork();
  s->extend(std::span(t).subspan(16));
  f->extend(std::vector<TokenId>(5, 9));
  s->rewind(16);
  const auto fresh = logits_in_chunks(*e->session(), t, t.size());
  CHECK(same(std::span(fresh).last(size_t(e->vocab_size())), s->extend(std::span(t).subspan(16))));
}
