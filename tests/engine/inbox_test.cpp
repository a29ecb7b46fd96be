// Requests that several threads add and cancel while one thread makes the passes. `make tsan` runs
// these cases under ThreadSanitizer.
#include "engine/requests/inbox.h"

#include <random>

#include "engine/grammar/regex.h"
#include "engine/pages/kv_cache.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

using Kind = RequestEvent::Kind;

// What the events of a request said. The thread of the passes writes it; others read it after the
// inbox is idle or gone.
struct Record {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<LogProbabilities> scores;
  std::optional<GenerateResult> result;
  std::optional<Error> error;
  int known = 0, last_events = 0, late_events = 0;

  void take(const RequestEvent& e) {
    if (last_events > 0) ++late_events;
    if (e.kind == Kind::reading) known = e.known;
    if (e.kind == Kind::token) tokens.push_back(e.token);
    if (e.kind == Kind::token && e.log_probabilities) scores.push_back(*e.log_probabilities);
    if (e.kind == Kind::text) text += e.text;
    if (e.kind == Kind::finish) result = *e.result, ++last_events;
    if (e.kind == Kind::error) error = *e.error, ++last_events;
  }
};

Inbox::Job job_of(const Engine& e, int i, int tokens, Record& record) {
  const GenerateOptions options = drawn(0.8, uint64_t(i), tokens);
  return {.prompt = prompt_for(e, i),
          .settings = options,
          .on_event = [&record](const RequestEvent& event) { record.take(event); }};
}

std::shared_ptr<Engine> on_two_threads(int context = 0) {
  EngineOptions o;
  o.device = "cpu", o.threads = 2, o.threads_fixed = true, o.context = context;
  return Engine::open(o);
}

TEST_CASE("inbox: requests of many threads have the text of each alone, also with cancelled ones") {
  const auto engine = on_two_threads();
  constexpr int kThreads = 4, kEach = 6;
  std::vector<GenerateResult> alone;
  for (int i = 0; i < kThreads * kEach; ++i)
    alone.push_back(generate(*engine->session(), prompt_for(*engine, i),
                             drawn(0.8, uint64_t(i), 20), kUnheard));
  std::vector<Record> records(kThreads * kEach), cancelled(kThreads);
  {
    Inbox inbox(std::make_shared<LoadedModel>(engine));
    std::vector<std::thread> clients;
    for (int t = 0; t < kThreads; ++t)
      clients.emplace_back([&, t] {
        std::mt19937 random{unsigned(t)};
        Inbox::Job endless = job_of(*engine, t, -1, cancelled[size_t(t)]);
        endless.settings.context_policy = ContextPolicy::shift;
        const Inbox::Id id = inbox.add(std::move(endless));
        for (int k = 0; k < kEach; ++k) {
          const int i = t * kEach + k;
          inbox.add(job_of(*engine, i, 20, records[size_t(i)]));
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
          CHECK(inbox.counts().running <= kThreads * (kEach + 1));
        }
        inbox.cancel(id);
        inbox.cancel(id), inbox.cancel(12345678);
      });
    for (std::thread& client : clients) client.join();
    inbox.wait_until_idle();
    const Inbox::Counts counts = inbox.counts();
    CHECK(counts.ended == kThreads * (kEach + 1));
    CHECK(counts.running + counts.waiting == 0);
    CHECK(counts.tokens >= kThreads * kEach * 20);
  }
  for (size_t i = 0; i < records.size(); ++i) {
    CAPTURE(i);
    const Record& r = records[i];
    REQUIRE(r.result);
    CHECK(r.result->tokens == alone[i].tokens);
    CHECK(r.tokens == alone[i].tokens);
    CHECK(r.text == alone[i].text);
    CHECK(r.known == r.result->prompt_tokens);
    CHECK(r.last_events == 1);
    CHECK(r.late_events == 0);
  }
  for (const Record& r : cancelled) {
    REQUIRE(r.result);
    CHECK(r.result->finish == Finish::interrupted);
  }
  for (const KvPool& pool : engine->kv_cache().pools) CHECK(pool.in_use() == 0);
}

TEST_CASE("inbox: an error is of one request, and the others go on") {
  const auto engine = on_two_threads(128);
  Inbox inbox(std::make_shared<LoadedModel>(engine));
  Record good, long_prompt, thrown;
  inbox.add(job_of(*engine, 1, 30, good));
  Inbox::Job too_long = job_of(*engine, 2, 5, long_prompt);
  too_long.prompt.assign(500, 5);
  inbox.add(std::move(too_long));
  Inbox::Job throws = job_of(*engine, 3, 30, thrown);
  throws.on_event = [&](const RequestEvent& e) {
    thrown.take(e);
    if (e.kind == Kind::text) fail(Exit::io, "the reader has gone");
  };
  inbox.add(std::move(throws));
  inbox.wait_until_idle();
  REQUIRE(good.result);
  CHECK(good.result->tokens.size() == 30);
  REQUIRE(long_prompt.error);
  CHECK(long_prompt.error->code == Exit::prompt_too_long);
  REQUIRE(thrown.error);
  CHECK(std::string(thrown.error->what()) == "the reader has gone");
}

TEST_CASE("inbox: memory that malloc refuses to one request ends that request alone") {
  const auto engine = on_two_threads(128);
  Inbox inbox(std::make_shared<LoadedModel>(engine));
  Record good, refused;
  inbox.add(job_of(*engine, 1, 30, good));
  Inbox::Job job = job_of(*engine, 3, 30, refused);
  job.on_event = [&](const RequestEvent& e) {
    refused.take(e);
    if (e.kind == Kind::text) throw std::bad_alloc();
  };
  inbox.add(std::move(job));
  inbox.wait_until_idle();
  REQUIRE(good.result);
  CHECK(good.result->tokens.size() == 30);
  REQUIRE(refused.error);
  CHECK(refused.error->code == Exit::memory);
}

TEST_CASE("inbox: grammars, drafts and log probabilities are those of a request alone") {
  const auto engine = on_two_threads();
  const auto rules = parse_regex({"--regex", "[a-z ]{8,20}\\."});
  const NewDrafter drafters = [](const SamplerOptions&) { return ngram_drafter(); };
  const auto model = std::make_shared<LoadedModel>(engine, drafters, 4);
  Grammar grammar(rules, engine->tokenizer());
  std::vector<Record> records(6);
  {
    Inbox inbox(model);
    for (int i = 0; i < 6; ++i) {
      Inbox::Job job = job_of(*engine, i, 25, records[size_t(i)]);
      job.settings.scored = 2;
      if (i % 2 == 0) job.rules = rules, job.settings.ignore_end = false;
      inbox.add(std::move(job));
    }
    inbox.wait_until_idle();
  }
  for (int i = 0; i < 6; ++i) {
    CAPTURE(i);
    GenerateOptions o = drawn(0.8, uint64_t(i), 25);
    o.scored = 2;
    if (i % 2 == 0) o.grammar = &grammar, o.ignore_end = false;
    const auto alone = generate(*engine->session(), prompt_for(*engine, i), o, kUnheard);
    const Record& r = records[size_t(i)];
    REQUIRE(r.result);
    CHECK(r.result->tokens == alone.tokens);
    CHECK(r.text == alone.text);
    REQUIRE(r.scores.size() == alone.log_probabilities.size());
    for (size_t k = 0; k < r.scores.size(); ++k)
      CHECK(r.scores[k].drawn == alone.log_probabilities[k].drawn);
  }
}

TEST_CASE(
    "inbox: texts that are read aside take turns, and one whose reader has gone comes first") {
  const auto engine = on_two_threads();
  Inbox inbox(std::make_shared<LoadedModel>(engine));
  constexpr size_t kReaders = 4;
  std::array<std::atomic<bool>, kReaders> gone{};
  std::vector<size_t> calls;  // of the thread of the passes
  std::optional<size_t> marked_at;
  const auto all_came = [&] {
    std::set<size_t> seen(calls.begin(), calls.end());
    return seen.size() == kReaders;
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kReaders; ++i)
    threads.emplace_back([&, i] {
      inbox.read(
          [&, i](Engine&, int) -> Inbox::Portion {
            // The last reader has just had its turn, so it would be the last one again.
            const bool marks = !marked_at && all_came() && calls.back() == kReaders - 1;
            calls.push_back(i);
            if (marks) marked_at = calls.size(), gone[kReaders - 1] = true;
            return {.tokens = 0, .last = marked_at && calls.size() > *marked_at};
          },
          gone[i]);
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(marked_at);
  CHECK(calls[*marked_at] == kReaders - 1);
  CHECK(calls.size() == *marked_at + kReaders);
}

TEST_CASE("inbox: one that goes away ends its requests with a last event each") {
  const auto engine = on_two_threads();
  std::vector<Record> records(5);
  {
    Inbox inbox(std::make_shared<LoadedModel>(engine));
    for (int i = 0; i < 5; ++i) {
      Inbox::Job endless = job_of(*engine, i, -1, records[size_t(i)]);
      endless.settings.context_policy = ContextPolicy::shift;
      inbox.add(std::move(endless));
    }
    while (inbox.counts().tokens < 20) std::this_thread::yield();
  }
  for (const Record& r : records) {
    REQUIRE(r.result);
    CHECK(r.result->finish == Finish::interrupted);
    CHECK(r.last_events == 1);
  }
}

}  // namespace
