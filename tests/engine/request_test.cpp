// Requests alone and in a batch: the text of each is the same, whatever other requests begin, end
// or fail.
#include <cmath>
#include <cstring>

#include "engine/grammar/regex.h"
#include "engine/pages/kv_cache.h"
#include "engine/passes/pipeline.h"
#include "engine/passes/profile.h"
#include "engine/requests/answer_cache.h"
#include "engine/requests/beam.h"
#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "engine/session/engine.h"
#include "ggml-like-tensor/noise.h"
#include "models/import/import.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

TEST_CASE("requests: a text does not depend on other requests that begin and end") {
  const auto other = Engine::open({});
  constexpr int kRequests = 9;
  std::vector<GenerateOptions> options;
  std::vector<GenerateResult> alone;
  for (int i = 0; i < kRequests; ++i) {
    options.push_back(drawn(i % 2 ? 0.9 : 0, uint64_t(i), 10 + 17 * (i % 4)));
    options[size_t(i)].ignore_end = i % 3 != 0;
    if (i % 4 == 1) options[size_t(i)].sampling.repeat_penalty = 1.3;
    if (i % 4 == 3) options[size_t(i)].stop = {"ball", "dog"};
    alone.push_back(
        generate(*other->session(), prompt_for(*other, i), options[size_t(i)], kUnheard));
  }
  for (const bool guess : {false, true})
    for (const int budget : {0, 7}) {
      CAPTURE(guess);
      CAPTURE(budget);
      const auto engine = Engine::open({});  // with an empty prefix cache
      Scheduler scheduler(engine, budget);
      Governor governor;
      std::vector<std::unique_ptr<Drafter>> drafters;
      std::vector<std::unique_ptr<Request>> requests;
      // A new request begins every few passes.
      for (int pass = 0; scheduler.step() || int(requests.size()) < kRequests; ++pass) {
        if (pass % 4 || int(requests.size()) == kRequests) continue;
        GenerateOptions o = options[requests.size()];
        drafters.push_back(ngram_drafter());
        if (guess) o.drafter = drafters.back().get(), o.draft_length = 3;
        if (requests.size() % 2) o.governor = &governor;
        requests.push_back(std::make_unique<Request>(
            *engine, prompt_for(*engine, int(requests.size())), o, kUnheard));
        scheduler.add(*requests.back());
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        CHECK(!requests[i]->error);
        const GenerateResult result = requests[i]->finished();
        CHECK(result.tokens == alone[i].tokens);
        CHECK(result.text == alone[i].text);
        CHECK(result.finish == alone[i].finish);
      }
    }
}

TEST_CASE("requests: requests with the same prompt share its pages, and it is read once") {
  const auto engine = Engine::open({});
  const auto prompt = engine->tokenizer().encode_prompt(
      "Once upon a time there was a boy named Tim. He had a big red ball and a small dog.");
  Scheduler scheduler(engine);
  std::vector<std::unique_ptr<Request>> requests;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    requests.push_back(std::make_unique<Request>(*engine, prompt, drawn(0.8, seed, 30), kUnheard));
    scheduler.add(*requests.back());
  }
  int read = 0;
  while (scheduler.step()) {
  }
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const GenerateResult result = requests[seed]->finished();
    read += result.prompt_tokens - result.cached_tokens;
    CHECK(result.tokens ==
          generate(*engine->session(), prompt, drawn(0.8, seed, 30), kUnheard).tokens);
  }
  CHECK(read == int(prompt.size()) + 3);  // 3: the last token again for each of the other draws
  for (const KvPool& pool : engine->kv_cache().pools) CHECK(pool.in_use() == 0);
}

TEST_CASE(
    "requests: without free pages requests wait or are preempted, and their texts are the same") {
  const auto engine = Engine::open({}), other = Engine::open({});
  KvPool& pool = engine->kv_cache().pools[0];
  std::vector<GenerateResult> alone;
  for (int i = 0; i < 3; ++i)
    alone.push_back(
        generate(*other->session(), prompt_for(*other, i), drawn(0.8, uint64_t(i), 90), kUnheard));
  std::vector<int32_t> taken;
  // There are pages for all prompts, or for one or two, but not for the texts.
  for (const int left : {12, 9, 16}) {
    CAPTURE(left);
    while (pool.size() - pool.in_use() > left) taken.push_back(pool.take());
    Scheduler scheduler(engine);
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < 3; ++i) {
      requests.push_back(std::make_unique<Request>(*engine, prompt_for(*engine, i),
                                                   drawn(0.8, uint64_t(i), 90), kUnheard));
      scheduler.add(*requests.back());
    }
    int most = 0;
    bool waited = false;
    while (scheduler.step())
      most = std::max(most, scheduler.running()), waited = waited || scheduler.waiting() > 0;
    CHECK(most > 1);
    CHECK(waited);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(!requests[i]->error);
      CHECK(requests[i]->finished().text == alone[i].text);
    }
    for (const int32_t page : taken) pool.release(page);
    taken.clear();
  }
  // There are too few pages for a single request.
  while (pool.size() - pool.in_use() > 3) taken.push_back(pool.take());
  Scheduler scheduler(engine);
  Request one(*engine, prompt_for(*engine, 0), drawn(0.8, 0, 90), kUnheard);
  scheduler.add(one);
  while (scheduler.step()) {
  }
  REQUIRE(one.error);
  CHECK(one.error->code == Exit::memory);
  for (const int32_t page : taken) pool.release(page);
}

// Many requests for 20 tokens, with pages for one request at a time.
struct FewPages {
  std::shared_ptr<Engine> engine = Engine::open({});
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<size_t> order;  // in which the requests ended

  FewPages() {
    KvPool& pool = engine->kv_cache().pools[0];
    while (pool.size() - pool.in_use() > 2) pool.take();
  }
  Request& one(int i) {
    requests.push_back(std::make_unique<Request>(*engine, prompt_for(*engine, 0),
                                                 drawn(0.8, uint64_t(i), 20), kUnheard));
    return *requests.back();
  }
  bool step(Scheduler& scheduler) {
    const bool more = scheduler.step();
    for (size_t i = 0; i < requests.size(); ++i)
      if (!requests[i]->goes_on() && std::ranges::count(order, i) == 0) order.push_back(i);
    return more;
  }
};

TEST_CASE("requests: a higher priority goes first, but no request waits for ever") {
  FewPages few;
  Scheduler scheduler(few.engine);
  const int priorities[] = {0, 0, 1, -1, 2};
  for (int i = 0; i < 5; ++i) scheduler.add(few.one(i), priorities[i]);
  while (few.step(scheduler)) {
  }
  CHECK(few.order == std::vector<size_t>{4, 2, 0, 1, 3});
  for (int i = 0; i < 5; ++i) {
    REQUIRE(!few.requests[size_t(i)]->error);
    CHECK(few.requests[size_t(i)]->finished().text ==
          generate(*Engine::open({})->session(), prompt_for(*few.engine, 0),
                   drawn(0.8, uint64_t(i), 20), kUnheard)
              .text);
  }

  // Requests with a higher priority arrive faster than they end. The waiting request still runs.
  FewPages busy;
  Scheduler crowded(busy.engine);
  crowded.add(busy.one(0), 1);
  crowded.add(busy.one(1));
  int passes = 0;
  while (std::ranges::count(busy.order, 1U) == 0) {
    if (passes % 15 == 0) crowded.add(busy.one(2 + passes / 15), 1);
    busy.step(crowded);
    REQUIRE(++passes < 400);
  }
  CHECK(passes > Scheduler::kAgeing);
  CHECK(crowded.waiting() > 0);
}

TEST_CASE("requests: a request ends alone if its reader leaves, it is interrupted or it fails") {
  const auto engine = Engine::open({});
  const auto prompt = prompt_for(*engine, 0);
  const auto want = generate(*engine->session(), prompt, drawn(0.8, 1, 60), kUnheard);
  std::atomic<bool> interrupt = false;
  GenerateOptions stopped = drawn(0.8, 2, 60);
  stopped.interrupt = &interrupt;
  Request stays(*engine, prompt, drawn(0.8, 1, 60), kUnheard),
      ends(*engine, prompt, stopped, kUnheard),
      leaves(*engine, prompt, drawn(0.8, 3, 60), [n = 0](std::string_view) mutable {
        if (++n == 5) fail(Exit::io, "the reader left");
      });
  struct Failing : Drafter {
    Draft propose(std::span<const TokenId>, const Draft::Shape&) override {
      fail(Exit::device, "the device is gone");
    }
  } failing;
  GenerateOptions guessed = drawn(0.8, 4, 60);
  guessed.drafter = &failing, guessed.draft_length = 2;
  Request fails(*engine, prompt, guessed, kUnheard);
  Scheduler scheduler(engine);
  for (Request* r : {&fails, &leaves, &stays, &ends}) scheduler.add(*r);
  for (int pass = 0; scheduler.step(); ++pass)
    if (pass == 20) interrupt = true;
  REQUIRE(leaves.error);
  CHECK(leaves.error->code == Exit::io);
  REQUIRE(fails.error);
  CHECK(fails.error->code == Exit::device);
  const GenerateResult interrupted = ends.finished();
  CHECK(interrupted.finish == Finish::interrupted);
  CHECK(interrupted.tokens.size() < 60);
  CHECK(stays.finished().text == want.text);
}

TEST_CASE(
    "requests: an interrupt in the middle of a pass ends those whose it is, and adds nothing") {
  const auto engine = Engine::open({});
  const auto prompt = prompt_for(*engine, 0);
  const auto want = generate(*engine->session(), prompt, drawn(0.8, 1, 60), kUnheard);
  std::atomic<bool> interrupt = false;
  GenerateOptions one = drawn(0.8, 1, 60), two = drawn(0.8, 2, 60);
  one.interrupt = two.interrupt = &interrupt;
  Request a(*engine, prompt, one, kUnheard), b(*engine, prompt, two, kUnheard);
  Scheduler scheduler(engine);
  for (Request* r : {&a, &b}) scheduler.add(*r);
  Executor& executor = engine->pipeline().whole_on_cpu()->executor();
  int passes = 0;
  executor.after_step = [&](const Plan&, size_t step) {
    if (passes == 12 && step == 3) interrupt = true;
  };
  while (scheduler.step()) ++passes;
  executor.after_step = nullptr;
  CHECK(passes == 12);
  for (const KvPool& pool : engine->kv_cache().pools) CHECK(pool.in_use() == 0);
  const GenerateResult said = a.finished();
  CHECK(said.finish == Finish::interrupted);
  CHECK(b.finished().finish == Finish::interrupted);
  CHECK(said.tokens.size() > 5);
  CHECK(said.tokens.size() < 13);
  CHECK(std::equal(said.tokens.begin(), said.tokens.end(), want.tokens.begin()));
}

TEST_CASE("requests: non-finite logits affect only their own sequence") {
  // The embeddings of the first 16 tokens are damaged.
  TempFolder folder;
  ModelSource source = import_model(golden("models/llama_gqa_untied"), {});
  for (TensorSource& t : source.tensors)
    if (t.info.name == "token_embd")
      t.read = [read = t.read](int64_t first, int64_t last, std::byte* dst) {
        read(first, last, dst);
        const float bad = NAN;
        if (first == 0)
          for (int i = 0; i < 16; ++i) std::memcpy(dst + i * sizeof bad, &bad, sizeof bad);
      };
  write_quipu(folder / "bad.quipu", source, 1);
  const auto engine = open_on_cpu(folder / "bad.quipu", Format::f16);
  const std::vector<TokenId> good{20, 21, 22}, bad{20, 3, 22};
  SamplerOptions options;
  Sampler sampler(options);
  const auto want = engine->session()->draw(good, sampler);
  const auto a = engine->session(), b = engine->session();
  const Extension pass[] = {{.session = b.get(), .tokens = bad, .sampler = &sampler},
                            {.session = a.get(), .tokens = good, .sampler = &sampler}};
  const std::vector<Draws> draws = draw_all(pass);
  REQUIRE(draws[0].error);
  CHECK(draws[0].error->code == Exit::non_finite);
  CHECK(draws[0].tokens.empty());
  CHECK(!draws[1].error);
  CHECK(draws[1].tokens == want);
  const auto alone = engine->session();
  CHECK(error_of([&] { alone->draw(bad, sampler); }).code == Exit::non_finite);
  CHECK(alone->position() == 0);
}

TEST_CASE("requests: a full context ends the text, or drops its older half and reads the rest") {
  EngineOptions small;
  small.context = 64;
  const auto engine = Engine::open(small);
  const auto prompt = prompt_for(*engine, 1);
  GenerateOptions o = drawn(0.8, 5, 150);
  const auto stopped = generate(*engine->session(), prompt, o, kUnheard);
  CHECK(stopped.finish == Finish::full);
  CHECK(prompt.size() + stopped.tokens.size() == 65);  // the last token is not read

  for (const auto policy : {ContextPolicy::shift, ContextPolicy::sinks}) {
    o.context_policy = policy, o.keep = 7;
    struct Drop {
      int dropped, before, after;
    };
    std::vector<Drop> drops;
    o.on_drop = [&](int dropped, int before, int after) {
      drops.push_back({dropped, before, after});
    };
    const auto shifted = generate(*engine->session(), prompt, o, kUnheard);
    CHECK(shifted.finish == Finish::length);
    CHECK(shifted.tokens.size() == 150);
    REQUIRE(drops.size() > 2);
    CHECK(drops[0].before == (policy == ContextPolicy::shift ? 7 : 4));
    CHECK(drops[0].before + drops[0].after + drops[0].dropped == 65);
    // Up to the first drop it is the text that stops at a full context. Then it is the text of a
    // run whose prompt is the kept half.
    CHECK(std::equal(stopped.tokens.begin(), stopped.tokens.end(), shifted.tokens.begin()));
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), stopped.tokens.begin(), stopped.tokens.end());
    all.erase(all.begin() + drops[0].before, all.begin() + drops[0].before + drops[0].dropped);
    GenerateOptions plain = drawn(0.8, 5, -1);
    const auto rest = generate(*engine->session(), all, plain, kUnheard);
    CHECK(std::equal(rest.tokens.begin(), rest.tokens.end(),
                     shifted.tokens.begin() + ptrdiff_t(stopped.tokens.size())));
    // Also in a batch and with drafts.
    const auto drafter = ngram_drafter();
    GenerateOptions with = o;
    with.drafter = drafter.get(), with.draft_length = 4;
    Request one(*engine, prompt, with, kUnheard),
        other(*engine, prompt, drawn(0.8, 6, 40), kUnheard);
    Scheduler scheduler(engine);
    scheduler.add(one), scheduler.add(other);
    while (scheduler.step()) {
    }
    CHECK(one.finished().tokens == shifted.tokens);
  }
}

TEST_CASE(
    "requests: a prompt that is too long is refused with both numbers, or loses its older half") {
  EngineOptions small;
  small.context = 20;
  const auto engine = Engine::open(small);
  const auto prompt = engine->tokenizer().encode_prompt(
      "Once upon a time there was a boy named Tim. He had a big red ball and a small dog.");
  REQUIRE(prompt.size() > 20);
  GenerateOptions o = drawn(0, 0, 5);
  const Error error = error_of([&] { Request(*engine, prompt, o, kUnheard); });
  CHECK(error.code == Exit::prompt_too_long);
  CHECK(contains(error.what(),
                 fmt::format("the prompt has {} tokens, but the context holds 20", prompt.size())));
  CHECK(contains(error.what(), "--context-policy shift"));
  int dropped = 0;
  o.context_policy = ContextPolicy::shift;
  o.on_drop = [&](int n, int, int) { dropped = n; };
  const auto result = generate(*engine->session(), prompt, o, kUnheard);
  CHECK(result.tokens.size() == 5);
  CHECK(dropped > 0);
  CHECK(dropped + result.prompt_tokens == int(prompt.size()));
}

TEST_CASE("requests: the probability of an answer is that of its tokens one by one") {
  const auto engine = Engine::open({});
  const auto prompt = prompt_for(*engine, 0);
  GenerateOptions o = drawn(0.8, 4, 12);
  o.scored = 2;
  const auto result = generate(*engine->session(), prompt, o, kUnheard);
  const auto session = engine->session();
  auto logits = session->extend(prompt);
  const int vocab = engine->tokenizer().size();
  size_t n = 0;
  double sum = 0;
  for (const TokenId token : result.tokens) {
    double total = 0;
    for (int t = 0; t < vocab; ++t) total += std::exp(double(logits[size_t(t)]));
    const double want = double(logits[size_t(token)]) - std::log(total);
    const LogProbabilities& got = result.log_probabilities[n++];
    CHECK(got.drawn == doctest::Approx(want).epsilon(1e-9));
    REQUIRE(got.most.size() == 2);
    const auto largest = std::max_element(logits.begin(), logits.begin() + vocab);
    CHECK(got.most[0].first == largest - logits.begin());
    CHECK(got.most[0].second == doctest::Approx(*largest - std::log(total)).epsilon(1e-9));
    CHECK(got.most[1].second <= got.most[0].second);
    sum += want;
    logits = session->decode(token);
  }
  CHECK(n == result.log_probabilities.size());
  CHECK(result.mean_log_probability == doctest::Approx(sum / 12).epsilon(1e-9));
}

TEST_CASE("requests: progress in a prompt is reported, and a partly read prompt is kept") {
  EngineOptions options;
  options.device = "cpu";
  const auto engine = Engine::open(options);
  std::vector<TokenId> prompt;
  while (prompt.size() < 400) {
    const auto more = prompt_for(*engine, 3);
    prompt.insert(prompt.end(), more.begin(), more.end());
  }
  prompt.resize(400);
  using Told = std::vector<std::pair<int, int>>;
  Told told;
  std::atomic<bool> interrupt = false;
  GenerateOptions o = drawn(0, 0, 3);
  o.interrupt = &interrupt;
  o.on_read = [&](int known, int all) { told.emplace_back(known, all); };
  const int pass = engine->batch_length();
  REQUIRE(pass < 400);
  const auto session = engine->session();
  CHECK(generate(*session, prompt, o, kUnheard).known_tokens == 400);
  CHECK(told == Told{{0, 400}, {pass, 400}, {400, 400}});
  CHECK(beam_search(*engine->session(), prompt, o, {2, 1})[0].result.known_tokens == 400);
  told.clear();
  CHECK(generate(*session, prompt, o, kUnheard).known_tokens == 400);
  CHECK(told ==
        Told{{399, 400}, {400, 400}});  // all but the last token, which is read for its logits
  // Interrupted after the first portion.
  o.on_read = [&](int known, int) { interrupt = known > 0; };
  const auto fresh = [&] { return Engine::open(options); };  // with an empty prefix cache
  const GenerateResult left = generate(*fresh()->session(), prompt, o, kUnheard);
  CHECK(left.finish == Finish::interrupted);
  CHECK(left.known_tokens == pass);
  CHECK(left.prompt_rate() == 0);
  interrupt = false;
  const auto beams = beam_search(*fresh()->session(), prompt, o, {2, 1});
  CHECK(beams[0].result.known_tokens == pass);
  CHECK(beams[0].result.prompt_rate() == 0);
}

TEST_CASE(
    "requests: the key of an answer covers everything that decides its bytes, and nothing else") {
  const auto engine = Engine::open({});
  const auto prompt = prompt_for(*engine, 0);
  const GenerateOptions plain = drawn(0.8, 7, 20);
  std::vector<std::string> keys{AnswerKeys(*engine).key(prompt, plain)};
  CHECK(keys[0].size() == 64);
  Grammar a(parse_regex({"--regex", "[ab]*"}), engine->tokenizer()),
      b(parse_regex({"--regex", "[ac]*"}), engine->tokenizer()),
      again(parse_regex({"--regex", "[ab]*"}), engine->tokenizer());
  using O = GenerateOptions;
  const std::vector<std::function<void(O&)>> others = {
      [](O& o) { o.max_tokens = 21; },
      [](O& o) { o.stop = {"ball"}; },
      [](O& o) {
        o.stop = {"ba", "ll"};
      },
      [&](O& o) { o.grammar = &a; },
      [&](O& o) { o.grammar = &b; },
      [](O& o) { o.ignore_end = !o.ignore_end; },
      [](O& o) { o.spelled = {3}; },
      [](O& o) { o.context_policy = ContextPolicy::shift; },
      [](O& o) { o.keep = 3; },
      [](O& o) { o.sampling.temperature = 0.9; },
      [](O& o) { o.sampling.temperature = 0; },
      [](O& o) { o.sampling.top_k = 41; },
      [](O& o) { o.sampling.top_p = 0.9; },
      [](O& o) { o.sampling.min_p = 0.06; },
      [](O& o) { o.sampling.typical = 0.9; },
      [](O& o) { o.sampling.top_n_sigma = 2; },
      [](O& o) { o.sampling.xtc_probability = 0.5; },
      [](O& o) { o.sampling.xtc_threshold = 0.2; },
      [](O& o) { o.sampling.temperature_range = 0.1; },
      [](O& o) { o.sampling.temperature_exponent = 2; },
      [](O& o) { o.sampling.mirostat = 2; },
      [](O& o) { o.sampling.mirostat_target = 4; },
      [](O& o) { o.sampling.mirostat_rate = 0.2; },
      [](O& o) { o.sampling.repeat_penalty = 1.1; },
      [](O& o) { o.sampling.presence_penalty = 1; },
      [](O& o) { o.sampling.frequency_penalty = 1; },
      [](O& o) { o.sampling.penalty_window = 65; },
      [](O& o) { o.sampling.dry_multiplier = 1; },
      [](O& o) { o.sampling.dry_base = 2; },
      [](O& o) { o.sampling.dry_allowed = 3; },
      [](O& o) { o.sampling.dry_window = 9; },
      [](O& o) { o.sampling.dry_breakers = {"x"}; },
      [](O& o) {
        o.sampling.bias = {{3, 1.0}};
      },
      [](O& o) {
        o.sampling.bias = {{3, 2.0}};
      },
      [](O& o) { o.sampling.banned = {"dog"}; },
      [](O& o) { o.sampling.steps.pop_back(); },
      [](O& o) { o.sampling.seed = 8; },
  };
  for (const auto& change : others) {
    GenerateOptions o = plain;
    change(o);
    keys.push_back(AnswerKeys(*engine).key(prompt, o));
  }
  keys.push_back(AnswerKeys(*engine).key(prompt_for(*engine, 1), plain));
  for (const char* what : {"context", "kv", "scaling", "model"}) {
    EngineOptions e;
    if (what == std::string("context")) e.context = 64;
    if (what == std::string("kv")) e.kv = Format::q8;
    if (what == std::string("scaling")) e.rope_scaling = "linear:2";
    if (what == std::string("model")) e.model = golden("gguf/tiny_llama_q4_0.gguf");
    const auto other = Engine::open(e);
    keys.push_back(AnswerKeys(*other).key(prompt, plain));
  }
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t k = 0; k < i; ++k) CHECK_MESSAGE(keys[i] != keys[k], i, " equals ", k);

  // These change no byte: threads, drafter, sinks, a seed without draws, an equal grammar, and
  // where the weights are stored.
  EngineOptions one;
  one.threads = 1, one.threads_fixed = true;
  CHECK(AnswerKeys(*Engine::open(one)).key(prompt, plain) == keys[0]);
  const TempFolder folder;
  std::filesystem::copy_file("models/bundled/story.quipu", folder / "copy.quipu");
  one.model = folder / "copy.quipu", one.copy = true;
  CHECK(AnswerKeys(*Engine::open(one)).key(prompt, plain) == keys[0]);
  GenerateOptions o = plain;
  const auto drafter = ngram_drafter();
  Governor governor;
  const std::atomic<bool> interrupt = false;
  o.drafter = drafter.get(), o.draft_length = 4, o.governor = &governor, o.interrupt = &interrupt;
  o.on_drop = [](int, int, int) {};
  CHECK(AnswerKeys(*engine).key(prompt, o) == keys[0]);
  o.grammar = &a;
  const std::string with_grammar = AnswerKeys(*engine).key(prompt, o);
  o.grammar = &again;
  CHECK(AnswerKeys(*engine).key(prompt, o) == with_grammar);
  o.sampling.temperature = 0;
  const std::string greedy = AnswerKeys(*engine).key(prompt, o);
  o.sampling.seed = 9;
  CHECK(AnswerKeys(*engine).key(prompt, o) == greedy);
}

TEST_CASE("requests: a cached answer is returned whole or not at all, and the oldest are evicted") {
  const TempFolder folder;
  const AnswerCache cache(folder / "deep/er");
  const std::string key(64, 'a');
  CHECK(!cache.find(key));
  GenerateResult r;
  r.text = "A dog\n", r.tokens = {5, 6, 7}, r.finish = Finish::stop, r.prompt_tokens = 4;
  cache.keep(key, r);
  const auto found = cache.find(key);
  REQUIRE(found);
  CHECK(found->text == r.text);
  CHECK(found->tokens == r.tokens);
  CHECK(found->finish == r.finish);
  CHECK(found->prompt_tokens == 4);
  CHECK(found->cached);
  const std::string path = folder / "deep/er/" + key + ".answer", whole = read_file(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = char(damaged[i] ^ 4);
    write_file(path, damaged);
    REQUIRE(error_of([&] { cache.find(key); }).code == Exit::bad_file);
    write_file(path, whole.substr(0, i));
    REQUIRE(error_of([&] { cache.find(key); }).code == Exit::bad_file);
  }
  write_file(folder / "deep/er/" + std::string(64, 'b') + ".answer",
             whole);  // stored under the key of another answer
  CHECK(error_of([&] { cache.find(std::string(64, 'b')); }).code == Exit::bad_file);
  r.finish = Finish::interrupted;
  cache.keep(std::string(64, 'c'), r);
  r.finish = Finish::length, r.dropped_tokens = 3;
  cache.keep(std::string(64, 'd'), r);
  CHECK(!cache.find(std::string(64, 'c')));
  CHECK(!cache.find(std::string(64, 'd')));

  r.dropped_tokens = 0;
  const AnswerCache small(folder / "small", 3 * whole.size());
  write_file(folder / "small/mine.answer", std::string(1000, 'x'));
  const auto start = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (int i = 0; i < 6; ++i) {
    const std::string name(64, char('0' + i));
    small.keep(name, r);
    std::filesystem::last_write_time(folder / "small/" + name + ".answer",
                                     start + std::chrono::minutes(i));
  }
  for (int i = 0; i < 6; ++i)
    CHECK(small.find(std::string(64, char('0' + i))).has_value() == (i > 2));
  CHECK(have(folder / "small/mine.answer"));
  write_file(folder / "file", "x");
  CHECK(error_of([&] { AnswerCache(folder / "file"); }).code == Exit::io);
}

}  // namespace
}  // namespace chaski::test
