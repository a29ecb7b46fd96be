// Texts that threads generate in an inbox: the same as alone, whatever the other requests do.
// `make tsan` runs these cases under ThreadSanitizer.
#include "engine/requests/serving.h"

#include <random>
#include <ranges>
#include <thread>

#include "engine/grammar/regex.h"
#include "engine/pages/kv_cache.h"
#include "engine/requests/embedding.h"
#include "models/architecture.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

std::shared_ptr<Engine> on_two_threads(int context = 0) {
  EngineOptions o;
  o.device = "cpu", o.threads = 2, o.threads_fixed = true, o.context = context;
  return Engine::open(o);
}

std::shared_ptr<LoadedModel> with_ngrams(const std::shared_ptr<Engine>& engine) {
  return std::make_shared<LoadedModel>(
      engine, [](const SamplerOptions&) { return ngram_drafter(); }, 3);
}

struct Text {
  std::string text;
  std::vector<TokenId> tokens;
};

// ThreadSanitizer makes a text twenty times as slow; 32 texts have all kinds too. A slow program
// takes fewer texts in a pass, so their number is not checked.
#if defined(__SANITIZE_THREAD__)
constexpr int kEach = 4;
#else
constexpr int kEach = 14;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif
constexpr int kThreads = 8, kKinds = 28;

GenerateOptions options_of(int i, const std::shared_ptr<const Rules>& rules) {
  GenerateOptions o = drawn(i % 3 ? 0.8 : 0, uint64_t(i), 6 + 18 * (i % 4));
  if (i % 5 == 2) o.stop = {"ball", "dog"};
  if (i % 7 == 3) o.scored = 2;
  if (i % 7 == 5) o.rules = rules, o.ignore_end = false;
  return o;
}

TEST_CASE("serving: 112 texts of 8 threads are those alone, with cancels, drafts, preemption") {
  const auto rules = parse_regex({"--regex", "[a-z ]{4,12}\\."});
  std::vector<GenerateResult> alone;
  {
    const auto engine = on_two_threads();
    Grammar grammar(rules, engine->tokenizer());
    for (int i = 0; i < kKinds; ++i) {
      GenerateOptions o = options_of(i, rules);
      if (o.rules) o.grammar = &grammar;
      alone.push_back(generate(*engine->session(), prompt_for(*engine, i), o, kUnheard));
    }
  }
  const auto engine = on_two_threads();
  // Fewer pages than 8 threads need, so that requests wait and are preempted.
  KvPool& pool = engine->kv_cache().pools[0];
  while (pool.size() - pool.in_use() > 9) pool.take();
  const int64_t taken = pool.in_use();
  std::vector<std::string> wrong(kThreads);
  {
    Inbox inbox(with_ngrams(engine));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random{unsigned(t)};
        for (int k = 0; k < kEach; ++k) {
          const int i = (t * kEach + k) % kKinds;
          GenerateOptions o = options_of(i, rules);
          Text heard;
          o.on_token = [&](TokenId token, const LogProbabilities*) {
            heard.tokens.push_back(token);
          };
          const GenerateResult r = generate(
              inbox, prompt_for(*engine, i), o, [&](std::string_view part) { heard.text += part; },
              int(random() % 3));
          const GenerateResult& want = alone[size_t(i)];
          if (r.tokens != want.tokens || r.text != want.text || r.finish != want.finish ||
              heard.text != want.text || heard.tokens != want.tokens ||
              r.mean_log_probability != want.mean_log_probability)
            wrong[size_t(t)] += std::to_string(i) + " ";
          if (k % 3) continue;
          std::atomic<bool> interrupt = false;
          GenerateOptions endless = drawn(0.9, random(), -1);
          endless.context_policy = ContextPolicy::shift;
          endless.interrupt = &interrupt;
          const int last = int(random() % 20);
          int drawn = 0;
          endless.on_token = [&](TokenId, const LogProbabilities*) {
            if (++drawn > last) interrupt = true;
          };
          const GenerateResult cut = generate(inbox, prompt_for(*engine, k), endless, kUnheard);
          if (cut.finish != Finish::interrupted) wrong[size_t(t)] += "uncut ";
        }
      });
    for (std::thread& thread : threads) thread.join();
    inbox.wait_until_idle();
    const Inbox::Facts facts = inbox.facts();
    CHECK(facts.totals.preempted > 0);
    CHECK(facts.totals.drafted > 0);
    CHECK(facts.totals.prefix_tokens > 0);
    CHECK(facts.totals.accepted <= facts.totals.drafted);
    CHECK(facts.pages.used == taken);
    CHECK(facts.sequences.empty());
  }
  for (const std::string& of_thread : wrong) CHECK(of_thread.empty());
}

TEST_CASE("serving: several texts of one prompt read it once") {
  const auto engine = on_two_threads();
  std::vector<TokenId> prompt;
  while (prompt.size() < 70) {
    const auto more = prompt_for(*engine, 3);
    prompt.insert(prompt.end(), more.begin(), more.end());
  }
  Inbox inbox(std::make_shared<LoadedModel>(engine));
  std::vector<GenerateOptions> options;
  for (int i = 0; i < 4; ++i) options.push_back(drawn(0.8, uint64_t(i), 12));
  std::vector<std::string> heard(4);
  const std::vector<GenerateResult> all = generate_all(
      inbox, prompt, options, [&](size_t which, std::string_view part) { heard[which] += part; });
  inbox.wait_until_idle();
  // Each other text reads the last token for its own draw.
  CHECK(inbox.facts().totals.prompt_tokens <= int64_t(prompt.size()) + 3);
  const auto fresh = on_two_threads();
  for (size_t i = 0; i < all.size(); ++i) {
    const auto want = generate(*fresh->session(), prompt, options[i], kUnheard);
    CHECK(all[i].text == want.text);
    CHECK(heard[i] == want.text);
  }
}

TEST_CASE("serving: a receiver that does not take its text holds up itself only") {
  const auto engine = on_two_threads(4096);
  Inbox inbox(std::make_shared<LoadedModel>(engine));
  const auto prompt = prompt_for(*engine, 1);
  std::atomic<bool> others_done = false, stuck = false;
  GenerateResult slow;
  std::thread receiver([&] {
    GenerateOptions o = drawn(0.8, 5, 1500);
    o.context_policy = ContextPolicy::shift;
    slow = generate(inbox, prompt, o, [&](std::string_view) {
      stuck = true;
      while (!others_done) std::this_thread::yield();
    });
  });
  while (!stuck) std::this_thread::yield();
  // The queue of the stuck receiver fills, and then its request gets no passes.
  int64_t tokens = -1;
  while (inbox.counts().tokens != tokens) {
    tokens = inbox.counts().tokens;
    generate(inbox, prompt_for(*engine, 2), drawn(0.8, 1, 30), kUnheard);
    tokens += 30;
  }
  // The facts of a pass come after its last events.
  while (inbox.facts().sequences.size() != 1) std::this_thread::yield();
  const Inbox::Facts facts = inbox.facts();
  CHECK(facts.sequences[0].tokens < 1500);
  CHECK(facts.counts.running + facts.counts.waiting == 1);
  others_done = true;
  receiver.join();
  GenerateOptions o = drawn(0.8, 5, 1500);
  o.context_policy = ContextPolicy::shift;
  CHECK(slow.tokens == generate(*on_two_threads(4096)->session(), prompt, o, kUnheard).tokens);
}

TEST_CASE("serving: an error is thrown with its numbers, and what the receiver throws ends it") {
  const auto engine = on_two_threads(128);
  Inbox inbox(std::make_shared<LoadedModel>(engine));
  const auto error_of = [&](std::span<const TokenId> prompt, const Sink& sink) {
    try {
      generate(inbox, prompt, drawn(0.8, 1, 20), sink);
    } catch (const Error& error) {
      return error;
    }
    return Error(Exit::done, "");
  };
  const std::vector<TokenId> long_prompt(500, 5), whole(100, 5);
  const Error too_long = error_of(long_prompt, kUnheard);
  CHECK(too_long.code == Exit::prompt_too_long);
  CHECK(too_long.need == 500);
  CHECK(too_long.have == 128);
  const Error left = error_of(prompt_for(*engine, 1),
                              [](std::string_view) { fail(Exit::io, "the reader has gone"); });
  CHECK(std::string(left.what()) == "the reader has gone");
  inbox.wait_until_idle();
  for (const KvPool& pool : engine->kv_cache().pools) CHECK(pool.in_use() == 0);
}

TEST_CASE("serving: a prompt whose pages can never suffice fails alone with both numbers") {
  auto engine = on_two_threads(128);
  auto& pools = engine->kv_cache().pools;
  const KvPool whole = std::move(pools[0]);
  pools[0] = KvPool(4, [](int32_t, int32_t) {});
  Inbox inbox(std::make_shared<LoadedModel>(engine));
  try {
    generate(inbox, std::vector<TokenId>(100, 5), drawn(0.8, 1, 20), kUnheard);
    FAIL("the prompt needs more than 4 pages");
  } catch (const Error& error) {
    CHECK(error.code == Exit::memory);
    CHECK(error.need == 100);
    CHECK(error.have < 64);
    CHECK(error.have >= 16);
  }
  CHECK(generate(inbox, std::vector<TokenId>(5, 5), drawn(0.8, 1, 3), kUnheard).tokens.size() == 3);
}

TEST_CASE("serving: texts of one request for embeddings share passes, and each has its own bytes") {
  const auto engine = on_two_threads();
  auto& model = const_cast<Model&>(engine->model());
  std::vector<std::vector<TokenId>> texts;
  size_t all = 0;
  for (const size_t size : {3, 1, 40, 300, 7, 20, 1, 64}) {
    std::vector<TokenId>& text = texts.emplace_back();
    for (size_t i = 0; i < size; ++i) text.push_back(TokenId(5 + (i * 7 + size) % 90));
    all += size;
  }
  const std::atomic<bool> gone = false, left = true;
  for (const auto pooling : {Model::Pooling::last, Model::Pooling::mean}) {
    model.pooling = pooling;
    std::vector<std::vector<float>> alone;
    for (const auto& text : texts) alone.push_back(engine->session()->pooled(text));
    for (const int64_t pages : {int64_t(1000), int64_t(25)}) {  // then the longest text alone
      CAPTURE(pages);
      KvPool& pool = engine->kv_cache().pools[0];
      std::vector<int32_t> taken;
      Inbox inbox(std::make_shared<LoadedModel>(engine));
      inbox.run([&](Engine&) {
        while (pool.size() - pool.in_use() > pages) taken.push_back(pool.take());
      });
      CHECK(embeddings(inbox, texts, gone) == alone);
      inbox.wait_until_idle();
      const Inbox::Counts counts = inbox.counts();
      CHECK(counts.aside_tokens == int64_t(all));
      if (pages > 25 && !kSlow) CHECK(counts.aside_passes < int64_t(texts.size()) / 2);
      CHECK(embeddings(inbox, texts, left).empty());
      inbox.run([&](Engine&) {
        for (const int32_t page : taken) pool.release(page);
        CHECK(pool.in_use() == 0);
      });
    }
  }
  model.pooling = Model::Pooling::last;
}

TEST_CASE(
    "serving: the portion of a prompt keeps a pass within its limit, and grows as it learns") {
  constexpr double kStep = 0.02, kToken = 0.001;  // seconds
  PromptPortion portion(2);
  const auto choose = [&](int decoding) { return portion.next(decoding, 1, 512).prompt; };
  CHECK(choose(4) == 0);  // to measure the step
  const auto pass = [&](int decoding, int prompt) {
    const double seconds = (decoding > 0 ? kStep : 0.01) + kToken * prompt;
    portion.learn(decoding, prompt, seconds);
    return seconds;
  };
  pass(4, 0);
  CHECK(portion.step_seconds(4) == kStep);
  CHECK(choose(4) == PromptPortion::kFirst);
  int read = 0;
  for (int i = 0; i < 50; ++i) {
    CHECK(portion.next(4, 1, 512).decodes);
    const int n = choose(4);
    CHECK(pass(4, n) <= 2 * kStep * 1.001);
    read = n;
  }
  CHECK(read >= 16);
  pass(4, 0);
  // Tokens that become dearer, as in a long context, make it smaller.
  for (int i = 0; i < 30; ++i) portion.learn(4, choose(4), 0.2);
  CHECK(choose(4) == PromptPortion::kLeast);
  CHECK(choose(5) == 0);  // another step
  // Without decoding requests the time of a pass has another limit.
  PromptPortion reading(2);
  for (int i = 0; i < 40; ++i) reading.learn(0, reading.next(0, 1, 512).prompt, kToken * 1.0);
  CHECK(reading.next(0, 1, 512).prompt == 512);
  CHECK(PromptPortion(0).next(4, 1, 300).prompt == 300);
}

TEST_CASE("serving: while one request reads, others wait at most as long as most_slowdown says") {
  constexpr double kStep = 0.02, kToken = 0.001;  // seconds
  for (const double slowdown : {1.0, 1.5, 2.0, 5.0, 40.0}) {
    CAPTURE(slowdown);
    PromptPortion portion(slowdown);
    double since = 0, longest = 0;
    int read = 0;
    for (int i = 0; i < 200; ++i) {
      const PromptPortion::Choice choice = portion.next(4, 1, 4096);
      const double seconds = (choice.decodes ? kStep : 0) + kToken * choice.prompt;
      portion.learn(choice.decodes ? 4 : 0, choice.prompt, seconds);
      since += seconds;
      if (i > 100) longest = std::max(longest, since), read = std::max(read, choice.prompt);
      if (choice.decodes) since = 0;
    }
    const double least = kStep + PromptPortion::kLeast * kToken;
    CHECK(longest <= std::max(slowdown * kStep, least) * 1.01);
    CHECK(longest >= std::max(slowdown * kStep, least) * 0.7);
    if (slowdown == 1) CHECK(read <= PromptPortion::kFirst);
  }
}

TEST_CASE("serving: the more requests wait for a first token, the more of the time goes to them") {
  // The longest time between decode steps, and the share of the time without them.
  const auto measure = [&](double step, int waiting, double token = 0.001) {
    PromptPortion portion(2);
    double since = 0, longest = 0, all = 0;
    int steps = 0;
    for (int i = 0; i < 400; ++i) {
      const PromptPortion::Choice choice = portion.next(4, waiting, 512);
      const double seconds = (choice.decodes ? step : 0.003) + token * choice.prompt;
      portion.learn(choice.decodes ? 4 : 0, choice.prompt, seconds);
      if (!choice.decodes) CHECK(seconds <= PromptPortion::kMostReading * 1.001);
      since += seconds, all += seconds, steps += choice.decodes;
      if (i > 100) longest = std::max(longest, since);
      if (choice.decodes) since = 0;
    }
    CAPTURE(step);
    CAPTURE(waiting);
    const double most = std::max(PromptPortion::kMostBetween, PromptPortion::kMostSteps * step);
    CHECK(longest <= std::max(2 * step, std::min(std::ldexp(step, waiting), most)) * 1.01);
    return std::pair{longest, 1 - steps * step / all};
  };
  CHECK(measure(0.02, 1).second > 0.35);
  CHECK(measure(0.02, 3).second > 0.75);
  CHECK(measure(0.02, 15).second > 0.85);
  CHECK(measure(0.02, 60).first > 0.8 * PromptPortion::kMostBetween);
  CHECK(measure(0.2, 1).second > 0.4);
  CHECK(measure(0.4, 1).first <= 0.81);
  CHECK(measure(0.4, 15).second > 0.85);
  // A large model: no pass of a prompt alone fits, so the pass with the step reads as much as it
  // may.
  CHECK(measure(0.075, 1, 0.012).second > 0.45);
  CHECK(measure(0.075, 2, 0.012).second > 0.7);
}

TEST_CASE("serving: the last of a group waits less than twice as long as all prompts take alone") {
  // Requests whose prompts have 200 tokens come together, or one with `tokens` to others that
  // decode. Returns the time of the last first token.
  const auto measure = [](int decoding, int reading, int tokens, bool counts_late) {
    PromptPortion portion(2);
    double now = 0;
    int left = tokens, latest = 0;
    while (reading > 0) {
      const int late = counts_late ? portion.how_late(decoding, tokens, now) : 0;
      latest = std::max(latest, late);
      const PromptPortion::Choice choice = portion.next(decoding, reading + late, left);
      const int decodes = choice.decodes ? decoding : 0;
      const double seconds = (decodes > 0 ? 0.05 + 0.005 * (decodes - 1) : 0.0) +
                             choice.prompt * (decodes > 0 ? 0.012 : 0.009);
      portion.learn(decodes, choice.prompt, seconds);
      now += seconds, left -= choice.prompt;
      if (left == 0) --reading, ++decoding, left = tokens;
    }
    return std::pair{now, latest};
  };
  const double alone = 4 * 200 * 0.009;
  CHECK(measure(0, 4, 200, true).first < 1.5 * alone);
  CHECK(measure(0, 4, 200, true).first < 0.9 * measure(0, 4, 200, false).first);
  CHECK(measure(4, 1, 4000, true) == measure(4, 1, 4000, false));
}

TEST_CASE("serving: a pass that reads a prompt next to a decode step is abandoned for a cancel") {
  const auto engine = on_two_threads();
  std::atomic<bool> abandon = false;
  Scheduler scheduler(engine, 0, 2, &abandon);
  Request decodes(*engine, prompt_for(*engine, 1), drawn(0, 1, 100), kUnheard);
  scheduler.add(decodes);
  while (!decodes.begun()) scheduler.step();
  for (int i = 0; i < 3; ++i) scheduler.step();  // the time of a step is known
  std::vector<TokenId> prompt;
  for (int i = 0; i < 300; ++i) prompt.push_back(TokenId(10 + i % 200));
  Request reads(*engine, prompt, drawn(0, 1, 2), kUnheard);
  scheduler.add(reads);
  const auto read = [&] { return scheduler.totals().prompt_tokens; };
  const int64_t before = read();
  while (read() == before) scheduler.step();
  REQUIRE(!reads.begun());
  const int64_t known = read();
  const size_t tokens = decodes.so_far().tokens.size();
  abandon = true;
  scheduler.step();
  CHECK(read() == known);
  CHECK(decodes.so_far().tokens.size() == tokens);
  scheduler.step();  // the next one is not
  CHECK(read() > known);
  abandon = false;
  while (scheduler.step()) {
  }
  CHECK(reads.so_far().tokens.size() == 2);
}

}  // namespace
}  // namespace chaski::test
