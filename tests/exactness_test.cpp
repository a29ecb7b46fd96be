// The logits of a token depend on the model and the tokens before it, and on nothing else: bit for
// bit.
#include <cmath>
#include <cstring>

#include "engine/generate.h"
#include "engine/quantize.h"
#include "engine/session.h"
#include "ggml-like-tensor/backend.h"
#include "tests/engine_support.h"
#include "tests/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// A model of every kind: each architecture, floats of odd sizes, windows, scalings, block formats.
std::vector<std::string> models() {
  std::vector<std::string> out{
      golden("gguf/tiny_llama_q4_0.gguf"), golden("gguf/tiny_llama_mixed.gguf"),
      golden("gguf/tiny_llama_floats.gguf"), golden("gguf/tiny_llama_grids.gguf"), ""};
  for (const auto& entry : std::filesystem::directory_iterator(golden("models")))
    if (entry.is_directory()) out.push_back(entry.path());
  return out;
}

std::shared_ptr<Engine> open_exact(const std::string& model, int threads = 2,
                                   Format kv = Format::f16) {
  EngineOptions o;
  o.model = model, o.threads = threads, o.threads_fixed = true, o.kv = kv;
  return Engine::open(o);
}

// All logits of the tokens, given to the session in chunks.
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

TEST_CASE("exact: any chunking of the prompt, every kind of keys and values") {
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

TEST_CASE("exact: alone or beside others") {
  for (const std::string& m : models()) {
    CAPTURE(m);
    const auto e = open_exact(m);
    const auto t = tokens_for(*e, 24);
    const auto alone = logits_in_chunks(*e->session(), t, t.size());
    auto a = e->session(), b = e->session(), c = e->session();
    b->extend(std::span(t).subspan(5, 9));
    const Extension parts[] = {{c.get(), std::span(t).first(3), 1},
                               {a.get(), t, int(t.size())},
                               {b.get(), std::span(t).first(7), 1}};
    const auto all = Session::extend_all(parts);
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
  s->extend(std::vector<TokenId>(10, 5));  // writes into the page that both hold
  CHECK(same(last, f->extend(std::span(t).subspan(37))));
  // ... and what the first wrote there is still its own.
  std::vector<TokenId> other(t.begin(), t.begin() + 37);
  other.insert(other.end(), 10, 5);
  other.push_back(7);
  const auto alone = logits_in_chunks(*e->session(), other, other.size());
  CHECK(same(std::span(alone).last(size_t(e->vocab_size())), s->decode(7)));
  s->rewind(37);
  const auto rest = s->reuse(t);
  CHECK(s->position() == 37);
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

TEST_CASE("sampler: greedy, one candidate, penalties, and the distribution of draws") {
  const std::vector<float> logits{0.0f, 2.0f, 1.0f, -1.0f};
  SamplerOptions o;
  o.temperature = 0;
  CHECK(Sampler(o).draw(logits, {}) == 1);
  o.repeat_penalty = 4;
  const std::vector<TokenId> seen{1};
  CHECK(Sampler(o).draw(logits, seen) == 2);
  o = {};
  o.top_k = 1;
  CHECK(Sampler(o).draw(logits, {}) == 1);

  o = {};
  o.temperature = 1, o.top_k = 0, o.top_p = 1, o.min_p = 0;
  std::vector<int> counts(4);
  std::vector<TokenId> history;
  Sampler s(o);
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    history.push_back(0);
    ++counts[size_t(s.draw(logits, history))];
  }
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x));
  for (size_t i = 0; i < 4; ++i)
    CHECK(counts[i] / double(n) ==
          doctest::Approx(std::exp(double(logits[i])) / sum).epsilon(0.05));

  o.min_p = 0.3;  // e^-1 of the best is kept, e^-2 is not
  std::vector<bool> drawn(4);
  Sampler narrow(o);
  for (int i = 0; i < 2000; ++i) {
    history.push_back(0);
    drawn[size_t(narrow.draw(logits, history))] = true;
  }
  CHECK(drawn == std::vector<bool>{false, true, true, false});
}
