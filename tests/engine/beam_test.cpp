// Beam search: the same texts as a search by its definition, bit for bit, and its passes and pages.
#include "engine/requests/beam.h"

#include <cmath>

#include "engine/pages/kv_cache.h"
#include "engine/passes/pipeline.h"
#include "engine/passes/profile.h"
#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "ggml-like-tensor/noise.h"
#include "models/import/import.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

struct SlowBeam {
  std::vector<TokenId> tokens;
  double sum = 0;
  int length = 0;
  bool ended = false;
  double score(double penalty) const {
    return penalty == 1 ? sum / length : sum * exp64(-penalty * log64(double(length)));
  }
};

std::string pieces(const Tokenizer& t, const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += t.piece(token);
  return text;
}

// Beam search by its definition: a new session for each text and token, all tokens of the
// vocabulary as continuations, and full sorts. A text ends before the word `stop`.
std::vector<SlowBeam> slow_beams(Engine& engine, const std::vector<TokenId>& prompt, size_t width,
                                 double penalty, size_t tokens, const std::string& stop) {
  const Tokenizer& t = engine.tokenizer();
  std::vector<SlowBeam> live(1), over;
  while (!live.empty()) {
    std::vector<SlowBeam> all;
    for (const SlowBeam& from : live) {
      std::vector<TokenId> text = prompt;
      text.insert(text.end(), from.tokens.begin(), from.tokens.end());
      const auto session = engine.session();
      const auto logits = session->extend(text).first(size_t(t.size()));
      const LogProbabilities every = log_probabilities(logits, 0, t.size());
      for (const auto& [token, value] : every.most) {
        all.push_back(from);
        all.back().sum += value, ++all.back().length;
        all.back().ended = t.is_end(token);
        if (!all.back().ended) all.back().tokens.push_back(token);
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const SlowBeam& a, const SlowBeam& b) { return a.sum > b.sum; });
    live.clear();
    for (size_t rank = 0; rank < 2 * width && rank < all.size(); ++rank) {
      SlowBeam& b = all[rank];
      const bool stops = !stop.empty() && contains(pieces(t, b.tokens), stop);
      if (!b.ended && !stops && b.tokens.size() < tokens) {
        if (live.size() < width) live.push_back(b);
      } else if (rank < width) {
        over.push_back(b);
      }
    }
    std::stable_sort(over.begin(), over.end(), [&](const SlowBeam& a, const SlowBeam& b) {
      return a.score(penalty) > b.score(penalty);
    });
    if (over.size() > width) over.resize(width);
    if (over.size() == width && !live.empty() &&
        live[0].score(penalty) <= over.back().score(penalty))
      break;
  }
  return over;
}

TEST_CASE("requests: beams are those of a search with a session for each text, bit for bit") {
  struct Search {
    size_t width;
    double penalty;
    int prompt, tokens;
    std::string stop;
  };
  const auto engine = Engine::open({});
  for (const Search& s :
       {Search{1, 1, 0, 12, ""}, Search{2, 1, 1, 20, ""}, Search{3, 0, 2, 25, "."},
        Search{4, 1, 0, 25, "."}, Search{5, 2.5, 3, 15, ","}, Search{9, 0.5, 2, 6, ""}}) {
    CAPTURE(s.width);
    CAPTURE(s.penalty);
    const auto prompt = prompt_for(*engine, s.prompt);
    const auto want = slow_beams(*engine, prompt, s.width, s.penalty, size_t(s.tokens), s.stop);
    GenerateOptions o = drawn(0, 0, s.tokens);
    o.ignore_end = false;
    if (!s.stop.empty()) o.stop = {s.stop};
    for (const int threads : {1, 2}) {
      EngineOptions options;
      options.threads = threads, options.threads_fixed = true;
      const auto other = Engine::open(options);
      const auto got =
          beam_search(*other->session(), prompt, o, BeamOptions{int(s.width), s.penalty});
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].result.tokens == want[i].tokens);
        CHECK(got[i].score == want[i].score(s.penalty));
        const std::string text = pieces(engine->tokenizer(), want[i].tokens);
        CHECK(got[i].result.text == text.substr(0, s.stop.empty() ? text.npos : text.find(s.stop)));
      }
      for (const KvPool& pool : other->kv_cache().pools) CHECK(pool.in_use() == 0);
    }
  }
}

TEST_CASE("requests: one beam is the greedy text, with any logit changes and stop conditions") {
  EngineOptions small;
  small.context = 64;
  const auto engine = Engine::open(small);
  for (int i = 0; i < 8; ++i) {
    CAPTURE(i);
    GenerateOptions o = drawn(0, 0, i % 4 == 0 ? -1 : 40);
    o.ignore_end = i % 4 == 0;
    if (i % 2) o.sampling.repeat_penalty = 1.3;
    if (i == 2) o.stop = {"ball", "dog", "."};
    if (i == 3) o.sampling.banned = {"the"}, o.sampling.bias = {{300, 2.0}};
    if (i == 5) o.max_tokens = 0;
    const auto prompt = prompt_for(*engine, i);
    const auto want = generate(*engine->session(), prompt, o, kUnheard);
    const auto session = engine->session();
    session->extend(std::span(prompt).first(2));  // from an earlier text
    const auto got = beam_search(*session, prompt, o, {1, 1});
    REQUIRE(got.size() == 1);
    CHECK(got[0].result.text == want.text);
    CHECK(got[0].result.tokens == want.tokens);
    CHECK(got[0].result.finish == want.finish);
    CHECK(got[0].result.passes == want.passes);
  }
}

TEST_CASE("requests: beams take one pass per token and store the prompt once") {
  const auto engine = Engine::open({});
  std::vector<TokenId> prompt;
  while (prompt.size() < 70) {
    const auto more = prompt_for(*engine, 3);
    prompt.insert(prompt.end(), more.begin(), more.end());
  }
  GenerateOptions o = drawn(0, 0, 10);
  const auto session = engine->session();
  Profile profile;
  engine->pipeline().profile = &profile;
  const auto beams = beam_search(*session, prompt, o, {8, 1});
  engine->pipeline().profile = nullptr;
  REQUIRE(beams.size() == 8);
  CHECK(profile.passes == 10);  // the prompt, and nine tokens after the first
  CHECK(beams[0].result.passes == 9);
  for (size_t i = 1; i < 8; ++i) CHECK(beams[i].score <= beams[i - 1].score);
  // An interrupt ends all beams where they are.
  const std::atomic<bool> interrupt = true;
  o.interrupt = &interrupt;
  const auto none = beam_search(*engine->session(), prompt, o, {4, 1});
  REQUIRE(none.size() == 1);
  CHECK(none[0].result.finish == Finish::interrupted);
  CHECK(none[0].result.text.empty());
}

}  // namespace
}  // namespace chaski::test
