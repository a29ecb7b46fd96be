// The rows of a pass: read in place if it has one batch, and the same with any number of batches.
#include "engine/session/pass.h"

#include "engine/pages/kv_cache.h"
#include "engine/passes/pipeline.h"
#include "engine/session/engine.h"
#include "tests/kit/doctest.h"
#include "tests/kit/engine_support.h"

namespace chaski::test {
namespace {

// Two extensions of new sessions, in batches of at most `most` tokens.
struct TwoTexts {
  explicit TwoTexts(int most) : engine(open_on_cpu("", Format::f16)) {
    engine->pipeline().max_batch = most, engine->kv_cache().prefixes.reset();
    for (std::unique_ptr<Session>& s : sessions) s = engine->session();
    texts[0] = tokens_for(*engine, 40), texts[1] = tokens_for(*engine, 7);
    parts[0] = {.session = sessions[0].get(), .tokens = texts[0], .wanted = 30};
    parts[1] = {.session = sessions[1].get(), .tokens = texts[1], .wanted = 2};
  }

  std::shared_ptr<Engine> engine;
  std::array<std::unique_ptr<Session>, 2> sessions;
  std::array<std::vector<TokenId>, 2> texts;
  std::array<Extension, 2> parts;
};

std::vector<float> copy_of(std::span<const float> rows) { return {rows.begin(), rows.end()}; }

TEST_CASE("pass: rows are the same in any number of batches, and one batch is read in place") {
  for (const Result result : {Result::logits, Result::hidden, Result::both}) {
    CAPTURE(int(result));
    TwoTexts whole(256);
    Pass pass(whole.parts, result);
    REQUIRE(pass.run());
    CHECK(pass.rows().data() == whole.engine->pipeline().result());
    const std::vector<float> rows = copy_of(pass.rows());
    const size_t cols = size_t(whole.engine->pipeline().columns(result));
    REQUIRE(rows.size() == 32 * cols);
    CHECK(same(pass.row(1, 1), std::span(rows).last(cols)));
    for (const int most : {5, 16, 41}) {
      CAPTURE(most);
      TwoTexts cut(most);
      Pass several(cut.parts, result);
      REQUIRE(several.run());
      CHECK(same(several.rows(), rows));
      CHECK(cut.sessions[1]->tokens() == cut.texts[1]);
      if (result == Result::both)
        for (size_t i = 0; i < 40; i += 13) CHECK(same(several.hidden(0, i), pass.hidden(0, i)));
    }
    TwoTexts streamed(16);
    std::vector<float> got;
    Pass(streamed.parts, result).each_row([&](std::span<const float> row) {
      got.insert(got.end(), row.begin(), row.end());
    });
    CHECK(got == rows);
  }
}

TEST_CASE("pass: an abandoned pass keeps nothing, and the sessions go on") {
  TwoTexts two(16);
  std::atomic<bool> interrupt = true;
  for (Extension& part : two.parts) part.interrupt = &interrupt;
  CHECK_FALSE(Pass(two.parts).run());
  CHECK_FALSE(Pass(two.parts).each_row([](auto) { FAIL("an abandoned pass returned a row"); }));
  for (const auto& session : two.sessions) CHECK(session->position() == 0);
  CHECK(two.engine->kv_cache().pools[0].in_use() == 0);
  two.parts[1].interrupt = nullptr;  // a pass for several requests is not lost for one of them
  Pass again(two.parts);
  CHECK(again.run());
  CHECK(two.sessions[0]->position() == 40);
}

}  // namespace
}  // namespace chaski::test
