// The prefix cache: no sequence reads again what another one has read, and all logits have the same
// bits as without the cache.
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"
#include "engine/passes/pipeline.h"
#include "engine/passes/profile.h"
#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "engine/session/engine.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/program.h"
#include "tests/kit/scratch_model.h"

namespace chaski::test {
namespace {

// An engine without a prefix cache.
std::shared_ptr<Engine> always_cold(const EngineOptions& options) {
  auto engine = Engine::open(options);
  engine->kv_cache().prefixes.reset();
  return engine;
}

// Takes pages of a pool until only this many are left.
class Crowd {
 public:
  Crowd(KvPool& pool, int64_t left) : pool_(pool) {
    while (pool_.size() - pool_.in_use() > left) pages_.push_back(pool_.take());
  }
  Crowd(const Crowd&) = delete;
  ~Crowd() {
    for (const int32_t page : pages_) pool_.release(page);
  }

 private:
  KvPool& pool_;
  std::vector<int32_t> pages_;
};

TEST_CASE("prefix: a hash finds candidates, and their tokens and predecessors decide") {
  using Link = PrefixIndex::Link;
  for (const PrefixIndex::Sum sum :
       {PrefixIndex::Sum(PrefixIndex::sum_of),
        PrefixIndex::Sum([](std::span<const TokenId>, uint64_t) { return uint64_t(7); })}) {
    std::vector<KvPool> pools;
    pools.emplace_back(8, [](int32_t, int32_t) {});
    PrefixIndex index(pools, sum);
    KvPool& pool = pools[0];
    const auto text = [](TokenId first) {
      std::vector<TokenId> tokens;
      for (TokenId i = 0; i < kPage; ++i) tokens.push_back(first + i);
      return tokens;
    };
    const auto add = [&](Link* before, TokenId first) {
      const int32_t page = pool.take();
      return index.add(before, text(first), std::span(&page, 1));
    };
    Link *const a = add(nullptr, 0), *const b = add(nullptr, 100), *const ab = add(a, 100),
                *const ac = add(a, 200), *const abb = add(ab, 100);
    CHECK(index.size() == 5);
    CHECK(index.find(nullptr, text(0)) == a);
    CHECK(index.find(nullptr, text(100)) == b);
    CHECK(index.find(a, text(100)) == ab);
    CHECK(index.find(a, text(200)) == ac);
    CHECK(index.find(ab, text(100)) == abb);
    CHECK(!index.find(b, text(100)));
    CHECK(!index.find(a, text(101)));
    CHECK(!index.find(nullptr, text(200)));
    CHECK(abb->end == 48);
    // Adding the link again does not move its page.
    const int32_t place = ab->places[0];
    CHECK(add(a, 100) == ab);
    CHECK(ab->places[0] == place);
    CHECK(index.size() == 5);
    CHECK(pool.in_use() == 6);

    // All idle pages are evicted. Links that are in use, and those before them, stay in the index.
    PrefixIndex::retain(ab);
    for (int32_t page = 0; page < 6; ++page) pool.release(page);
    CHECK(pool.idle() == 5);
    while (pool.try_take()) {
    }
    CHECK(index.size() == 2);
    CHECK(index.find(a, text(100)) == ab);
    CHECK(ab->places[0] == kNoPage);
    index.release(ab);
    CHECK(index.size() == 0);
  }
}

TEST_CASE(
    "prefix: pages of another session give the bits of a cold start, with every model and KV "
    "format") {
  std::vector<std::string> models{"", golden("gguf/tiny_llama_q4_0.gguf"),
                                  golden("gguf/tiny_llama_mixed.gguf")};
  for (const std::string& model : golden_models()) models.push_back(model);
  for (const std::string& model : models)
    for (const KvType& kv : kKvTypes) {
      CAPTURE(model);
      CAPTURE(kv.name);
      const auto engine = open_on_cpu(model, kv.format);
      const int n = std::min(engine->context_length(), 60);
      const auto t = tokens_for(*engine, n);
      const auto cold = engine->session();
      const auto logits = cold->extend(t, n);
      const std::vector<float> want(logits.begin(), logits.end());
      const int at = 2 * n / 3;
      auto other = t;
      other[size_t(at)] = (other[size_t(at)] + 1) % engine->vocab_size();
      const auto told = engine->session();
      told->extend(other);
      auto warm = engine->session();
      // Only the pages of `told` are shared. Those of `cold` are not in the index, because it
      // wanted the logits of all its tokens, so they might have been draft tokens.
      auto rest = warm->reuse(t);
      // These texts are too short for a snapshot of a recurrent state.
      const bool remembers =
          std::ranges::any_of(engine->kv_cache().states.pools, &StateLayout::Pool::recurrent);
      REQUIRE(warm->position() == (remembers ? 0 : at / kPage * kPage));
      told->rewind(7);
      const auto fork = warm->fork();
      for (Session* s : {warm.get(), fork.get()}) {
        const auto got = s->extend(rest, int(rest.size()));
        CHECK(same(got, std::span(want).last(got.size())));
      }
      // Both continue, and a third session finds their pages.
      fork->rewind(at - 5);
      fork->extend(std::span(other).subspan(size_t(at) - 5, 5));
      warm = engine->session();
      warm->extend(t);
      warm = engine->session();
      rest = warm->reuse(t);
      CHECK(warm->position() == (remembers ? 0 : (n - 1) / kPage * kPage));
      const auto got = warm->extend(rest, int(rest.size()));
      CHECK(same(got, std::span(want).last(got.size())));
    }
}

TEST_CASE("prefix: with a sliding window, pages are shared as far as they still exist") {
  EngineOptions o;
  o.model = golden("models/gemma3"), o.context = 2048, o.threads = 2, o.device = "cpu";
  o.sessions = 4;  // so that no page is evicted yet
  const auto cold = always_cold(o), warm = Engine::open(o);
  const auto t = tokens_for(*cold, 1900);
  const auto want_of = [&](std::span<const TokenId> text) {
    const auto session = cold->session();
    const auto logits = session->extend(text);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto got_of = [&](std::span<const TokenId> text, int known) {
    const auto session = warm->session();
    const auto rest = session->reuse(text);
    CHECK(session->position() == known);
    const auto logits = session->extend(rest);
    CHECK(same(want_of(text), logits));
    for (const int back : {int(text.size()) - 20, int(text.size()) / 2, 3}) {
      session->rewind(back);
      CHECK(same(want_of(text), session->extend(session->reuse(text))));
    }
  };
  auto first = warm->session();
  for (size_t i = 0; i < 1800; i += 300) first->extend(std::span(t).subspan(i, 300));
  got_of(t, 1792);
  got_of(std::span(t).first(200), 192);
  // Without the pages before the window, a short text is read again, but a long one is not.
  Engine& e = *warm;
  REQUIRE(e.kv_cache().states.pools.size() == 2);
  for (size_t i = 0; i < 2; ++i)
    if (e.kv_cache().states.pools[i].window > 0) {
      const Crowd crowd(e.kv_cache().pools[i], 80);
      CHECK(e.kv_cache().pools[i].idle() == 0);
    }
  const auto session = warm->session();
  const auto rest = session->reuse(std::span(t).first(200));
  CHECK(session->position() < 192);
  CHECK(same(want_of(std::span(t).first(200)), session->extend(rest)));
  const auto second = warm->session();
  second->reuse(t);
  CHECK(second->position() == 1792);
}

TEST_CASE("prefix: snapshots of recurrent states are found, and give the bits of a cold start") {
  const TempFolder folder;
  EngineOptions o;
  o.model = write_scratch_model(folder / "scratch.quipu"), o.device = "cpu";
  o.sessions = 4;  // so that no snapshot is dropped yet
  const auto cold = always_cold(o), warm = Engine::open(o);
  const auto t = tokens_for(*cold, 1200);
  const auto want_of = [&](std::span<const TokenId> text) {
    const auto session = cold->session();
    const auto logits = session->extend(text);
    return std::vector<float>(logits.begin(), logits.end());
  };
  auto first = warm->session();
  first->extend(std::span(t).first(900));
  // Another session continues at the prompt's last whole page, and at a multiple of 256 if it has
  // only a part of the prompt.
  const auto expect_known = [&](std::span<const TokenId> text, int known) {
    CAPTURE(known);
    const auto session = warm->session();
    const auto rest = session->reuse(text);
    CHECK(session->position() == known);
    CHECK(same(want_of(text), session->extend(rest)));
  };
  expect_known(std::span(t).first(950), 896);
  auto other = t;
  other.resize(800), other[600] = (other[600] + 1) % ScratchModel::kVocab;
  expect_known(other, 512);
  expect_known(std::span(t).first(200), 0);  // the snapshot is at 256
  // A session that goes back reads at most 256 tokens again.
  for (const int back : {890, 700, 600}) {
    CAPTURE(back);
    const int reached = first->rewind(back);
    CHECK(reached > back - kStateStep);
    CHECK(same(want_of(std::span(t).first(900)),
               first->extend(std::span(t).subspan(size_t(reached), size_t(900 - reached)))));
  }
  // Tokens that are generated one by one make snapshots at multiples of 256 too.
  for (size_t i = 900; i < 1100; ++i) first->decode(t[i]);
  expect_known(t, 1024);
  // Idle snapshots are dropped, least recently used first, when the pool needs their memory.
  Engine& e = *warm;
  const size_t pool = size_t(e.kv_cache().states.recurrent[1].pool);
  CHECK(e.kv_cache().pools[pool].in_use() + e.kv_cache().pools[pool].idle() <=
        e.kv_cache().pools[pool].within());
  {
    const Crowd crowd(e.kv_cache().pools[pool], 3);
    CHECK(e.kv_cache().pools[pool].idle() == 0);
  }
  expect_known(t, 0);
}

// Random prompts with common beginnings.
std::vector<std::vector<TokenId>> some_prompts(const Engine& e, int n) {
  std::mt19937 random(5);
  const int vocab = e.tokenizer().size();
  const auto any = [&](size_t length) {
    std::vector<TokenId> tokens;
    while (tokens.size() < length) tokens.push_back(TokenId(3 + random() % unsigned(vocab - 3)));
    return tokens;
  };
  std::vector<std::vector<TokenId>> beginnings, prompts;
  for (int i = 0; i < 3; ++i) beginnings.push_back(any(150));
  while (int(prompts.size()) < n) {
    std::vector<TokenId> prompt = beginnings[random() % 3];
    prompt.resize(1 + random() % 150);
    const auto more = any(random() % 20);
    prompt.insert(prompt.end(), more.begin(), more.end());
    prompts.push_back(prompt);
  }
  return prompts;
}

TEST_CASE(
    "prefix: texts are those of a cold start, whatever other requests run and whichever pages are "
    "evicted") {
  constexpr int kTexts = 60;
  const auto cold = always_cold({}), warm = Engine::open({});
  const auto prompts = some_prompts(*cold, kTexts);
  std::vector<GenerateOptions> options;
  std::vector<GenerateResult> want;
  for (int i = 0; i < kTexts; ++i) {
    options.push_back(drawn(i % 2 ? 0.9 : 0, uint64_t(i), 5 + 11 * (i % 4)));
    want.push_back(generate(*cold->session(), prompts[size_t(i)], options[size_t(i)], kUnheard));
    CHECK(want.back().cached_tokens == 0);
  }
  KvPool& pool = warm->kv_cache().pools[0];
  for (const int64_t left : {int64_t(1000), int64_t(45)})
    for (const bool guess : {false, true}) {
      CAPTURE(left);
      CAPTURE(guess);
      const Crowd crowd(pool, left);
      Scheduler scheduler(warm);
      std::vector<std::unique_ptr<Drafter>> drafters;
      std::vector<std::unique_ptr<Request>> requests;
      for (int pass = 0; scheduler.step() || int(requests.size()) < kTexts; ++pass) {
        if (pass % 3 || int(requests.size()) == kTexts) continue;
        const size_t i = requests.size();
        GenerateOptions o = options[i];
        drafters.push_back(ngram_drafter());
        if (guess) o.drafter = drafters.back().get(), o.draft_length = 3;
        requests.push_back(std::make_unique<Request>(*warm, prompts[i], o, kUnheard));
        scheduler.add(*requests.back());
      }
      int known = 0;
      for (size_t i = 0; i < kTexts; ++i) {
        CAPTURE(i);
        REQUIRE(!requests[i]->error);
        const GenerateResult got = requests[i]->finished();
        CHECK(got.tokens == want[i].tokens);
        CHECK(got.text == want[i].text);
        known += got.cached_tokens;
      }
      CHECK(known > 500);
    }
  CHECK(pool.in_use() == 0);
  CHECK(pool.idle() > 0);
  CHECK(int64_t(warm->kv_cache().prefixes->size()) == pool.idle());
  // A single session that generates one text after the other shares pages that it has released.
  const auto one = warm->session();
  for (int i = 0; i < 6; ++i) {
    const auto& prompt = prompts[size_t(i) % 3];
    const GenerateResult got = generate(*one, prompt, options[size_t(i) % 3], kUnheard);
    CHECK(got.tokens == want[size_t(i) % 3].tokens);
    if (i >= 3) CHECK(got.cached_tokens >= int(prompt.size() - 1) / kPage * kPage);
  }
}

TEST_CASE("prefix: writing again to an indexed page does not change the index") {
  const auto cold = always_cold({}), warm = Engine::open({});
  const auto t = tokens_for(*cold, 100);
  auto other = t;
  for (size_t i = 40; i < other.size(); ++i) other[i] = (other[i] + 9) % cold->vocab_size();
  const auto last = [&](std::span<const TokenId> text) {
    const auto session = cold->session();
    const auto logits = session->extend(text);
    return std::vector<float>(logits.begin(), logits.end());
  };
  // It goes back into the third page and writes other tokens.
  const auto session = warm->session();
  session->extend(t);
  CHECK(same(last(other), session->extend(session->reuse(other))));
  const auto third = warm->session();
  CHECK(third->reuse(t).size() == 4);
  CHECK(same(last(t), third->extend(std::span(t).subspan(96))));
  // If no page is left for a copy of an indexed page, it leaves the index and is overwritten.
  session->rewind(72);
  const Crowd crowd(warm->kv_cache().pools[0], 0);
  const auto ends = std::span(t).subspan(72, 8);
  session->extend(ends);
  auto mixed = std::vector<TokenId>(other.begin(), other.begin() + 72);
  mixed.insert(mixed.end(), ends.begin(), ends.end());
  CHECK(same(last(mixed), session->extend(session->reuse(mixed))));
}

TEST_CASE(
    "prefix: a text costs one hash per 16 tokens, and idle pages do not exceed the promised "
    "memory") {
  const auto engine = Engine::open({});
  const PrefixIndex& index = *engine->kv_cache().prefixes;
  const KvPool& pool = engine->kv_cache().pools[0];
  uint64_t tokens = 0;
  std::vector<TokenId> prompt = tokens_for(*engine, 200);
  for (int i = 0; i < 40; ++i) {
    for (TokenId& token : prompt) token = (token + 1) % engine->tokenizer().size();
    const uint64_t before = index.sums();
    const GenerateResult r = generate(*engine->session(), prompt, drawn(0, 0, 40), kUnheard);
    CHECK(r.cached_tokens == 0);
    CHECK(index.sums() - before <= (prompt.size() + r.tokens.size()) / kPage + 1);
    tokens += prompt.size() + r.tokens.size();
  }
  const int64_t promised = pages_of_session(engine->kv_cache().states.pools,
                                            engine->context_length(), engine->batch_length())[0];
  CHECK(tokens / kPage > uint64_t(promised));
  CHECK(pool.spare() == promised);
  CHECK(pool.in_use() == 0);
  CHECK(int64_t(index.size()) == pool.idle());
}

// A model of a few kilobytes with a long context.
std::shared_ptr<Engine> long_and_small(int sessions) {
  EngineOptions o;
  o.model = golden("models/llama_gqa_untied"), o.context = 2600, o.sessions = sessions;
  o.device = "cpu", o.threads = 2;
  return Engine::open(o);
}

TEST_CASE(
    "prefix: 16 sequences with 2000 common tokens store them once and read most of them once") {
  const auto engine = long_and_small(16);
  Engine& e = *engine;
  const auto common = tokens_for(*engine, 2000);
  engine->session()->extend(common);
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Extension> pass;
  for (int i = 0; i < 16; ++i) {
    texts.push_back(common);
    for (const TokenId token : {i, i + 1}) texts.back().push_back(token);
    sessions.push_back(engine->session());
    pass.push_back(
        {.session = sessions.back().get(), .tokens = sessions.back()->reuse(texts.back())});
    CHECK(sessions.back()->position() == 2000);
  }
  CHECK(e.kv_cache().pools[0].in_use() == 125);
  const auto bytes = [&](std::span<const Extension> extensions) {
    Profile profile;
    e.pipeline().profile = &profile;
    extend_all(extensions);
    e.pipeline().profile = nullptr;
    double sum = 0;
    for (const auto& [name, step] : profile.steps)
      if (name.op == "attention") sum += step.cost.bytes;
    return sum;
  };
  const double together = bytes(pass);
  CHECK(e.kv_cache().pools[0].in_use() == 125 + 16);
  const auto session = engine->session();
  const Extension one{.session = session.get(), .tokens = session->reuse(texts[0])};
  // The 7 full chunks of 256 cells have 112 pages, which are read once. In the last chunk each
  // sequence reads its 14 pages.
  CHECK(together / bytes({&one, 1}) == doctest::Approx((112 + 16 * 14) / 126.0));
}

TEST_CASE("prefix: two sessions that read the same text at the same time store it once") {
  const auto engine = long_and_small(2);
  const auto t = tokens_for(*engine, 100);
  const auto a = engine->session(), b = engine->session();
  const Extension both[] = {{.session = a.get(), .tokens = t}, {.session = b.get(), .tokens = t}};
  extend_all(both);
  CHECK(engine->kv_cache().pools[0].in_use() == 6 + 2);  // 2: the page that each session writes to
}

TEST_CASE("prefix: with 1000 requests, fewer than 4% of the cells in pages are empty") {
  const auto engine = long_and_small(16);
  const KvPool& pool = engine->kv_cache().pools[0];
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto system = tokens_for(*engine, 200);
  struct Running {
    std::unique_ptr<Session> session;
    std::vector<TokenId> text;
    size_t prompt;
  };
  std::vector<Running> running;
  double slots = 0, empty = 0;
  int begun = 0;
  for (; begun < 1000 || !running.empty(); std::erase_if(
           running, [](const Running& r) { return r.session->position() == int(r.text.size()); })) {
    while (begun < 1000 && running.size() < 16) {
      // Prompts of 20 to 1000 tokens, mostly short ones, and 10 to 200 generated tokens.
      Running r{engine->session(), {}, size_t(20 * std::pow(50, uniform(random)))};
      if (begun % 4 == 0) r.text = system, r.prompt += system.size();
      const size_t all = r.prompt + size_t(10 + 190 * uniform(random));
      while (r.text.size() < all)
        r.text.push_back(TokenId(random() % unsigned(engine->vocab_size())));
      running.push_back(std::move(r)), ++begun;
    }
    std::vector<Extension> pass;
    for (const Running& r : running) {
      const auto rest = r.session->reuse(r.text);
      const size_t in_prompt = r.prompt - std::min(r.prompt, size_t(r.session->position()));
      pass.push_back({.session = r.session.get(),
                      .tokens = rest.first(std::clamp(in_prompt, size_t(1), size_t(64))),
                      .wanted = 0});
    }
    extend_all(pass);
    slots += double(pool.in_use()) * kPage;
    for (const Running& r : running)  // the last page is not shared
      empty += (kPage - r.session->position() % kPage) % kPage;
  }
  CHECK(empty / slots < 0.04);
  CHECK(empty > 0);
}

TEST_CASE("prefix: four answers to a prompt of 2000 tokens cost one prompt") {
  EngineOptions o;
  o.context = 2200, o.device = "cpu";
  const auto engine = Engine::open(o);
  const auto prompt = tokens_for(*engine, 2000);
  for (const bool again : {false, true}) {
    Scheduler scheduler(engine);
    std::vector<std::unique_ptr<Request>> requests;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      requests.push_back(std::make_unique<Request>(*engine, prompt, drawn(0.8, seed, 5), kUnheard));
      scheduler.add(*requests.back());
    }
    int64_t read = 0;
    for (bool more = true; more;) more = scheduler.step(), read += engine->pipeline().batch.size();
    // Read are the prompt, its last token again for the three other answers, and four tokens of
    // each answer: the last one is not read. The second time, of the prompt only its last page.
    CHECK(read == (again ? 16 : 2000) + 3 + 4 * 4);
  }
}

TEST_CASE(
    "cli/prefix: tokens that a chat has dropped from its context are not read again, and the text "
    "is the same") {
  using nlohmann::json;
  const std::string dog = "Tell me a story about a dog who had a big red ball and a small house.",
                    cat = "Tell me a story about a cat who lived in a tree with a little bird.";
  const auto chat = [](const std::string& lines) {
    const Outcome outcome =
        chaski_run({"chat", "--lines", "--jsonl", "-m", kStory, "-n", "12", "--temp", "0"}, lines);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    std::vector<json> results;
    std::istringstream in(outcome.out);
    for (std::string line; std::getline(in, line);)
      if (json object = json::parse(line); object["event"] == "result") results.push_back(object);
    return results;
  };
  const auto cold = chat(dog + "\n");
  REQUIRE(cold.size() == 1);
  CHECK(cold[0]["cached_tokens"] == 0);
  const auto all = chat(dog + "\n/clear\n" + cat + "\n/clear\n" + dog + "\n/undo\n" + cat +
                        "\n/undo\n" + dog + "\n");
  REQUIRE(all.size() == 5);
  const int whole = (cold[0]["prompt_tokens"].get<int>() - 1) / 16 * 16;
  REQUIRE(whole > 0);
  for (const size_t i : {2, 4}) {
    CHECK(all[i]["cached_tokens"].get<int>() >= whole);
    CHECK(all[i]["text"] == cold[0]["text"]);
  }
  CHECK(all[3]["text"] == all[1]["text"]);
}

TEST_CASE("prefix: draft tokens of a draft model are not in its prefix index") {
  const auto target = Engine::open({}), draft = Engine::open({});
  const auto text = target->tokenizer().encode_prompt("Once upon a time there was a cat. The cat");
  REQUIRE(text.size() < size_t(kPage));
  const auto drafter = model_drafter(draft, *target, {});
  for (int tries = 0; tries < 2; ++tries) CHECK(drafter->propose(text, {15}).nodes.size() == 15);
  CHECK(draft->kv_cache().prefixes->size() == 0);
  // Accepted tokens are, once the text reaches the next page.
  std::vector<TokenId> whole = text;
  for (const int pages : {2, 3}) {
    while (whole.size() < size_t(pages * kPage) + 2) whole.push_back(TokenId(100 + whole.size()));
    drafter->propose(whole, {2});
  }
  CHECK(draft->kv_cache().prefixes->size() == 2);
}

}  // namespace
}  // namespace chaski::test
