// A model with all kinds of states (scratch_model.h): the logits of a token depend only on the
// tokens up to it, however sessions are extended, rewound and forked.
#include <atomic>
#include <cstring>
#include <thread>

#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"
#include "engine/passes/pipeline.h"
#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "engine/session/pass.h"
#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/kv_formats.h"
#include "ggml-like-tensor/kv_layout.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/scratch_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

using Logits = std::vector<float>;

std::vector<TokenId> made_up(int n, int seed = 0) {
  std::vector<TokenId> t;
  for (int i = 0; i < n; ++i) t.push_back((i * i * 7 + 3 * i + seed) % ScratchModel::kVocab);
  return t;
}

struct Subject {
  TempFolder folder;
  std::shared_ptr<Engine> engine;
  explicit Subject(Format kv = Format::f16) {
    EngineOptions o;
    o.model = write_scratch_model(folder / "scratch.quipu"), o.device = "cpu", o.kv = kv;
    o.threads = 2, o.threads_fixed = true;
    engine = Engine::open(o);
  }
  // The logits of all tokens, in passes of at most `chunk` tokens.
  Logits logits(Session& s, std::span<const TokenId> tokens, size_t chunk) {
    Logits out;
    for (size_t i = 0; i < tokens.size(); i += chunk) {
      const auto part = tokens.subspan(i, std::min(chunk, tokens.size() - i));
      const auto some = s.extend(part, int(part.size()));
      out.insert(out.end(), some.begin(), some.end());
    }
    return out;
  }
  Logits fresh(std::span<const TokenId> tokens) {
    return logits(*engine->session(), tokens, tokens.size());
  }
  // The logits of the last token.
  Logits last(Session& s, std::span<const TokenId> tokens) {
    const auto some = s.extend(tokens);
    return {some.begin(), some.end()};
  }
  // Rewinds to `position` or before, appends the rest of `tokens` and returns the last logits.
  Logits back_and_on(Session& s, int position, std::span<const TokenId> tokens) {
    const int reached = s.rewind(position);
    CHECK(reached <= position);
    CHECK(reached == s.position());
    return last(s, tokens.subspan(size_t(reached)));
  }
};

Logits last_of(const Logits& all) { return {all.end() - ScratchModel::kVocab, all.end()}; }

}  // namespace

TEST_CASE("state/the first pages of a pool take no huge pages") {
  const HostPages pages(64 << 20);
  const uint64_t before = resident_memory();
  for (const size_t at : {1 << 20, 4 << 20, 7 << 20}) pages.data()[at] = std::byte{1};
  REQUIRE(before > 0);
  CHECK(resident_memory() < before + (1 << 20));
}

TEST_CASE("states: a prompt, its tokens one by one and any chunks, on every instruction set") {
  const auto t = made_up(300);
  for (const Format kv : {Format::f16, Format::q8, Format::q4_0}) {
    Logits first;
    for (const Backend* backend : cpu_backends()) {
      CAPTURE(backend->name);
      setenv("CHASKI_ISA", backend->name, 1);
      Subject s(kv);
      unsetenv("CHASKI_ISA");
      const Logits whole = s.fresh(t);
      if (first.empty()) first = whole;
      CHECK(whole == first);
      for (size_t chunk : {1, 2, 37}) CHECK(s.logits(*s.engine->session(), t, chunk) == whole);
    }
  }
}

TEST_CASE("states: in a batch with others, forked, and rewound to any position") {
  Subject s;
  const auto t = made_up(700), other = made_up(90, 11);
  const Logits whole = s.fresh(t), last = last_of(whole);
  auto a = s.engine->session(), b = s.engine->session();
  b->extend(std::span(other).first(33));
  const Extension together[] = {
      {.session = b.get(), .tokens = std::span<const TokenId>(other).subspan(33)},
      {.session = a.get(), .tokens = t}};
  const auto both = extend_all(together);
  CHECK(Logits(both.begin() + ScratchModel::kVocab, both.end()) == last);
  CHECK(Logits(both.begin(), both.begin() + ScratchModel::kVocab) == last_of(s.fresh(other)));

  for (int position : {699, 690, 640, 513, 512, 511, 300, 255, 17, 1, 0})
    CHECK(s.back_and_on(*a, position, t) == last);
  // A snapshot does not bring back tokens that were dropped after it was made.
  std::vector<TokenId> changed(t.begin(), t.begin() + 600);
  changed.insert(changed.end(), other.begin(), other.end());
  CHECK(s.back_and_on(*a, 600, changed) == last_of(s.fresh(changed)));

  // Two forks with the same tokens do not affect each other.
  auto f = a->fork();
  CHECK(f->position() == a->position());
  CHECK(s.back_and_on(*a, 650, t) != s.back_and_on(*f, 610, changed));
  for (int round = 0; round < 3; ++round) {
    CHECK(s.back_and_on(*a, 680 - round, t) == last);
    CHECK(s.back_and_on(*f, 660 - round, changed) == last_of(s.fresh(changed)));
  }
}

TEST_CASE(
    "states: what forked sessions have in common is read once, with the logits of each alone") {
  constexpr int kCommon = 2000, kSessions = 16;
  const auto prefix = made_up(kCommon);
  for (const Format kv : {Format::f16, Format::q8}) {
    Subject s(kv);
    Engine& e = *s.engine;
    std::vector<std::unique_ptr<Session>> sessions(1);
    sessions[0] = s.engine->session();
    sessions[0]->extend(prefix);
    while (sessions.size() < kSessions) sessions.push_back(sessions[0]->fork());
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<TokenId>> next;
      std::vector<Extension> parts;
      for (int i = 0; i < kSessions; ++i) next.push_back({TokenId(7 * i + step)});
      for (size_t i = 0; i < next.size(); ++i)
        parts.push_back({.session = sessions[i].get(), .tokens = next[i]});
      const auto together = extend_all(parts);
      const Logits all(together.begin(), together.end());
      // Full attention: 7 whole chunks for all sessions together, the eighth for each. The window:
      // for each.
      const Reading &full = e.pipeline().batch.readings[size_t(e.kv_cache().states.paged[2].pool)],
                    &window =
                        e.pipeline().batch.readings[size_t(e.kv_cache().states.paged[0].pool)];
      CHECK(full.groups.size() == kCommon / kChunk + kSessions);
      CHECK(full.alone == kSessions * (kCommon / kChunk + 1));
      CHECK(window.groups.size() == kSessions);
      for (int i : {0, 5, 15}) {
        std::vector<TokenId> tokens = prefix;
        for (int k = 0; k <= step; ++k) tokens.push_back(TokenId(7 * i + k));
        const Logits alone = last_of(s.fresh(tokens));
        CHECK(!std::memcmp(alone.data(), all.data() + i * ScratchModel::kVocab,
                           ScratchModel::kVocab * sizeof(float)));
      }
    }
  }
}

TEST_CASE(
    "states: after a verification pass a session rewinds to the beginning of the pass, not "
    "further") {
  Subject s;
  const auto t = made_up(500);
  const Logits whole = s.fresh(t);
  auto session = s.engine->session();
  session->extend(std::span(t).first(300));
  for (int at = 300; at < 400; at += 3) {
    // Two accepted draft tokens and two rejected ones.
    std::vector<TokenId> guesses{t[size_t(at)], t[size_t(at) + 1], 5, 6};
    session->extend(guesses, 4);
    CHECK(session->rewind(at + 2) == at);
    session->extend(std::span(t).subspan(size_t(at), 3));
  }
  CHECK(s.last(*session, std::span(t).subspan(size_t(session->position()))) == last_of(whole));
}

TEST_CASE(
    "states: recurrent states have no branches, and a chain of draft tokens changes no draw") {
  Subject s;
  const auto t = made_up(40);
  Sampler sampler({}, nullptr);
  const auto one = s.engine->session(), many = s.engine->session();
  CHECK(many->branches(1) == 0);
  std::vector<TokenId> want = one->draw(t, sampler), got = many->draw(t, sampler);
  while (want.size() < 30) want.push_back(one->draw(std::span(want).last(1), sampler)[0]);
  while (got.size() < want.size()) {
    std::vector<TokenId> text = t;
    text.insert(text.end(), got.begin(), got.end());
    const std::span<const TokenId> lacks = many->reuse(text);
    const size_t right = std::min(got.size() % 4, want.size() - got.size());
    std::vector<TokenId> guesses(want.begin() + ptrdiff_t(got.size()),
                                 want.begin() + ptrdiff_t(got.size() + right));
    guesses.push_back(7);  // rejected, mostly
    const auto drawn = many->draw(lacks, sampler, Draft::chain(guesses).nodes);
    CHECK(drawn.size() > right);
    got.insert(got.end(), drawn.begin(), drawn.end());
  }
  got.resize(want.size());
  CHECK(got == want);
}

TEST_CASE("states: a page table holds the cells that its tokens attend to, and shares them") {
  const int context = 100'000, pass = 48, window = 100;
  const StateLayout::Pool kinds[] = {
      {false, 0, false, 16}, {false, window, false, 16}, {true, 0, false, 16}};
  std::vector<int64_t> copied(3);
  for (int kind = 0; kind < 3; ++kind) {
    CAPTURE(kind);
    KvPool pool(10'000, [&](int32_t, int32_t) { ++copied[size_t(kind)]; });
    const int64_t most = pages_of_session({kinds + kind, 1}, context, pass)[0];
    {
      PageTable t(pool, kinds[kind], context, most);
      for (int at = 0; at < 5000; at += pass) {
        t.prepare(at, at + pass);
        CHECK(pool.in_use() <= most);
      }
      const int end = (5000 + pass - 1) / pass * pass;
      CHECK(pool.in_use() == (kind == 0 ? (end + kPage - 1) / kPage
                              : kind == 1
                                  ? end / kPage - (end - pass - kGoBack - window + 1) / kPage
                                  : 1));
      CHECK(t.reaches(end));
      CHECK(t.reaches(0));
      CHECK(t.reaches(end - kGoBack) == (kind < 2));
      CHECK(t.reaches(1000) == (kind == 0));

      const int64_t before = pool.in_use();
      PageTable other = t;
      CHECK(pool.in_use() == before);
      other.prepare(end, end + 1);  // takes a new page and copies no full one
      CHECK(copied[size_t(kind)] == (kind == 2));
      other.keep(end);
      t.prepare(end, end + 1), other.prepare(end, end + 1);
      CHECK(copied[size_t(kind)] == (kind == 2));
      other = t;  // both have the page of cell `end`
      t.prepare(end + 1, end + 2), other.prepare(end + 1, end + 2);
      CHECK(copied[size_t(kind)] == (kind == 2 ? 2 : 1));
      other.drop_before(end);
      t.keep(0);
      CHECK(t.reaches(0));
      CHECK(pool.in_use() == (kind == 0 ? end / kPage + 1 : kind == 1 ? window / kPage + 2 : 1));
    }
    CHECK(pool.in_use() == 0);
  }
}

TEST_CASE("states: a sliding window releases the pages before it, except those for rewinding") {
  Subject s;
  const auto t = made_up(2400);
  const Logits last = last_of(s.fresh(t));
  Engine& e = *s.engine;
  const auto pool = [&](bool recurrent, int window) -> KvPool& {
    for (size_t i = 0; i < e.kv_cache().states.pools.size(); ++i)
      if (e.kv_cache().states.pools[i].recurrent == recurrent &&
          e.kv_cache().states.pools[i].window == window)
        return e.kv_cache().pools[i];
    FAIL("there is no such pool");
    return e.kv_cache().pools[0];
  };
  CHECK(e.kv_cache().states.pools.size() == 3);
  auto session = s.engine->session();
  session->extend(t);
  CHECK(pool(false, 0).in_use() >= 2400 / kPage);
  CHECK(s.engine->state_bytes(2400) ==
        size_t(2400) / kPage *
                e.kv_cache().states.pools[size_t(e.kv_cache().states.paged[2].pool)].page_bytes +
            20 * (e.kv_cache().states.pools[0].page_bytes / kPage) +
            e.kv_cache().states.pools[size_t(e.kv_cache().states.recurrent[1].pool)].page_bytes);
  const std::vector<int64_t> most =
      pages_of_session(e.kv_cache().states.pools, 2600, e.pipeline().max_batch);
  CHECK(pool(true, 0).in_use() <= most[size_t(e.kv_cache().states.recurrent[1].pool)]);
  for (int position : {2399, 2000, 1000, 100}) CHECK(s.back_and_on(*session, position, t) == last);
  session.reset();
  for (const KvPool& p : e.kv_cache().pools) CHECK(p.in_use() == 0);

  // A model with sliding windows only: the bundled model's weights.
  EngineOptions o;
  o.model = golden("models/mistral_window"), o.device = "cpu";
  const auto mistral = Engine::open(o);
  CHECK(mistral->kv_cache().states.pools.size() == 1);
  CHECK(mistral->kv_cache().states.pools[0].window > 0);
}

TEST_CASE("states: after a failed pass a session continues from its position") {
  Subject s;
  const auto t = made_up(60);
  auto session = s.engine->session();
  session->extend(std::span(t).first(40));
  CHECK_THROWS_AS(session->extend(std::vector<TokenId>(ScratchModel::kContext, 1)), const Error&);
  CHECK(session->position() == 40);
  CHECK(s.last(*session, std::span(t).subspan(40)) == last_of(s.fresh(t)));
}

TEST_CASE("states: a pass that is abandoned after any of its steps changes nothing") {
  Subject s;
  const auto t = made_up(700);
  const Logits last = last_of(s.fresh(t));
  EngineOptions plain;
  plain.device = "cpu", plain.threads = 2, plain.threads_fixed = true;
  const auto story = Engine::open(plain);
  std::vector<TokenId> said(t.begin(), t.begin() + 400);
  for (TokenId& token : said) token %= story->vocab_size();
  const Logits want = s.last(*story->session(), said);
  for (Engine* engine : {s.engine.get(), story.get()}) {
    Engine& e = *engine;
    const bool scratch = engine == s.engine.get();
    const std::span<const TokenId> text = scratch ? std::span(t) : std::span<const TokenId>(said);
    std::atomic<bool> stop = false;
    size_t steps = 2, told = 0;
    Sampler sampler({}, nullptr);
    for (size_t at = 0; at + 1 < steps; ++at) {
      CAPTURE(at);
      auto session = engine->session();
      session->extend(text.first(300), 0);
      std::vector<int64_t> before, after;
      for (const KvPool& p : e.kv_cache().pools) before.push_back(p.in_use());
      told = 0;
      e.pipeline().whole_on_cpu()->executor().after_step = [&](const Plan& plan, size_t step) {
        steps = plan.steps.size(), ++told;
        if (step == at) stop = true;
      };
      const Extension next{.session = session.get(),
                           .tokens = text.subspan(300),
                           .sampler = &sampler,
                           .interrupt = &stop};
      const Draws draws = draw_all({&next, 1})[0];
      e.pipeline().whole_on_cpu()->executor().after_step = nullptr;
      stop = false;
      CHECK(draws.abandoned);
      CHECK(draws.tokens.empty());
      CHECK(told == at + 1);
      for (const KvPool& p : e.kv_cache().pools) after.push_back(p.in_use());
      if (!scratch) {  // recurrent states rewind to a snapshot
        CHECK(session->position() == 300);
        CHECK(after == before);
      }
      const size_t held = size_t(session->position());
      CHECK(std::ranges::equal(session->tokens(), text.first(held)));
      CHECK(s.last(*session, text.subspan(held)) == (scratch ? last : want));
    }
    CHECK(steps > 20);
  }
}

// Another thread sets the flag, so also in the middle of a step. Attention counts finished chunks.
TEST_CASE("states: a pass that is abandoned anywhere changes nothing") {
  Subject s;
  const auto t = made_up(2000);
  const Logits last = last_of(s.fresh(t));
  auto session = s.engine->session();
  session->extend(std::span(t).first(1999), 0);
  Sampler sampler({}, nullptr);
  int abandoned = 0;
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    const std::span<const TokenId> lacks = session->reuse(t);
    std::atomic<bool> stop = i == 0;
    std::thread presses([&stop, i] {
      for (std::atomic<int> wait = 0; wait < 5 * i; ++wait) {
      }
      stop = true;
    });
    const Extension next{
        .session = session.get(), .tokens = lacks, .sampler = &sampler, .interrupt = &stop};
    const Draws draws = draw_all({&next, 1})[0];
    presses.join();
    abandoned += draws.abandoned;
    CHECK(s.last(*session, session->reuse(t)) == last);
  }
  CHECK(abandoned > 0);
}

TEST_CASE("states: values inside keys are whole blocks of channels that are rotated together") {
  for (const auto& [k_dim, v_dim] : {std::pair{128, 64}, {72, 64}, {576, 512}, {128, 32}}) {
    CAPTURE(k_dim);
    const KvLayout layout{Format::q4_0, 1, k_dim, v_dim, false, true};
    KvFormats::with(layout.format, [&, v = v_dim]<class F>(F) {
      CHECK(v % layout.key_rotation<F>() == 0);
      CHECK(layout.value_rotation<F>() == layout.key_rotation<F>());
    });
  }
}
