// Who guesses ahead, and how far: the look back, and the governor that must not lose.
#include <random>

#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/governor.h"
#include "engine/suffix_automaton.h"
#include "tests/support.h"

namespace chaski::test {
namespace {

// The longest end of the text that begins earlier as well, and all places behind one, by
// comparison.
std::pair<int, std::vector<size_t>> by_comparison(const std::vector<int32_t>& text) {
  const int n = int(text.size());
  for (int length = n - 1; length > 0; --length) {
    std::vector<size_t> ends;
    for (int from = 0; from + length < n; ++from)
      if (std::equal(text.begin() + from, text.begin() + from + length, text.end() - length))
        ends.push_back(size_t(from + length));
    if (!ends.empty()) return {length, ends};
  }
  return {0, {}};
}

TEST_CASE("speculation: the longest match is the longest, whatever the text") {
  std::mt19937 random(7);
  for (const int vocab : {1, 2, 3, 8, 60}) {
    CAPTURE(vocab);
    SuffixAutomaton automaton;
    std::vector<int32_t> text;
    for (int i = 0; i < 150; ++i) {
      automaton.push(text.emplace_back(int32_t(random() % unsigned(vocab))));
      const auto [length, ends] = by_comparison(text);
      const SuffixAutomaton::Match match = automaton.longest_match();
      REQUIRE(match.length == length);
      if (length > 0) REQUIRE(std::find(ends.begin(), ends.end(), match.end) != ends.end());
    }
  }
}

TEST_CASE("speculation: a look back takes the latest place, and goes on with its own guesses") {
  const auto drafter = ngram_drafter();
  const std::vector<TokenId> none{1, 2, 3, 4};
  CHECK(drafter->kind(none) == -1);
  CHECK(drafter->propose(none, 3).empty());
  const std::vector<TokenId> twice{1, 2, 9, 1, 2, 8, 1, 2};
  CHECK(drafter->kind(twice) == 1);  // a text that is another
  CHECK(drafter->propose(twice, 2) == std::vector<TokenId>{8, 1});
  const std::vector<TokenId> round{5, 6, 7, 5, 6, 7, 5};
  CHECK(drafter->propose(round, 7) == std::vector<TokenId>{6, 7, 5, 6, 7, 5, 6});
}

// Passes of a machine that takes 1 + slope (n - 1) for n tokens, and sometimes longer, and guesses
// that are right with probability p at each place: time without guesses over time with them, but
// for what was by chance. Of a drafter that costs nothing guesses are made also to learn from.
double speed_up(double slope, double p, double guess_cost, int passes, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  Governor governor;
  double seconds = 0, tokens = 0;
  for (int i = 0; i < passes; ++i) {
    Governor::Outcome o;
    const bool watched = guess_cost > 0 || governor.knows(0);
    o.kind = 0, o.guesses = watched ? governor.length(0, Governor::kMost) : 0;
    while (o.right < o.guesses && uniform(random) < p) ++o.right;
    o.drafting = o.guesses * guess_cost;
    const double passing = 1 + slope * o.guesses;
    if (o.guesses == 0 && guess_cost == 0) governor.learn_unasked(0, uniform(random) < p);
    governor.learn(o);
    governor.learn_pass(o.guesses + 1, 1, o.right + 1,
                        passing * (uniform(random) < 0.05 ? 3 : 1 + 0.1 * uniform(random)));
    seconds += o.drafting + passing, tokens += o.right + 1;
  }
  return tokens / seconds;
}

TEST_CASE("speculation: a governor wins where guesses are right, and loses nothing elsewhere") {
  for (const unsigned seed : {1u, 2u, 3u}) {
    CAPTURE(seed);
    // as this engine's passes are: T(4)/T(1) 1.08, T(8)/T(1) 1.34
    CHECK(speed_up(0.05, 0.9, 0, 2000, seed) > 2.5);
    CHECK(speed_up(0.05, 0.5, 0, 2000, seed) > 1.3);
    CHECK(speed_up(0.05, 0, 0, 2000, seed) > 0.99);
    // passes that grow with their tokens, and a drafter as dear as the model
    for (const double p : {0.0, 0.3, 0.6, 0.9}) CHECK(speed_up(1, p, 0, 2000, seed) > 0.985);
    for (const double p : {0.0, 0.6, 0.95}) CHECK(speed_up(0.05, p, 1, 2000, seed) > 0.985);
    // short texts
    for (const double p : {0.0, 0.3}) CHECK(speed_up(0.2, p, 0, 135, seed) > 0.985);
    // a smaller model, a tenth of the cost
    CHECK(speed_up(0.05, 0.7, 0.1, 2000, seed) > 1.5);
  }
}

TEST_CASE("speculation: text with looks back is the text without, greedy and sampled") {
  const auto engine = Engine::open({});
  const std::string story = "Once upon a time there was a cat. Once upon a time there was a dog. ";
  const auto prompt = engine->tokenizer().encode_prompt(story + story);
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions plain;
    plain.max_tokens = 120, plain.sampling.temperature = temperature, plain.sampling.seed = 3,
    plain.ignore_end = true;
    const auto want = generate(*engine->session(), prompt, plain, [](std::string_view) {});
    for (const bool governed : {false, true})
      for (const int k : {1, 4, 15}) {
        const auto drafter = ngram_drafter();
        Governor governor;
        GenerateOptions with = plain;
        with.drafter = drafter.get(), with.draft_length = k;
        with.governor = governed ? &governor : nullptr;
        const auto got = generate(*engine->session(), prompt, with, [](std::string_view) {});
        CHECK(got.tokens == want.tokens);
        CHECK(got.text == want.text);
        CHECK(got.accepted <= got.drafted);
        if (!governed) CHECK(got.accepted > 0);
      }
  }
}

}  // namespace
}  // namespace chaski::test
