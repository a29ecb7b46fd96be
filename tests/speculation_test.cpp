// Who guesses ahead, and how far: the look back, and the governor that must not lose.
#include <array>
#include <cmath>
#include <random>

#include "engine/divergence.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/governor.h"
#include "engine/right_draws.h"
#include "engine/suffix_automaton.h"
#include "ggml-like-tensor/noise.h"
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

// A vocabulary of four tokens, and a model whose logits depend on the token before; another that
// guesses for it.
constexpr int kToyTokens = 4, kToyTexts = 1 << 20;
using ToyModel = std::array<std::array<float, kToyTokens>, kToyTokens>;
constexpr ToyModel kToyTarget =
                       {{{0, 1, -1, 0.5f}, {2, 0, 0, -1}, {-0.5f, 0, 0.5f, 1}, {0, 0, 3, 1}}},
                   kToyGuesser = {{{1, 1, -1, 0}, {1, 0, 1, -1}, {0, 0, 0, 0}, {0, 2, 1, 0}}};

enum class ToyGuesses { none, coupled, blind };

// Three tokens behind token 0. A right guess is one that right_draws() says is right; or, by a rule
// that is wrong, one that is kept with probability min(1, p / q), and else the model draws without
// regard to what was refused.
std::array<TokenId, 3> toy_text(const SamplerOptions& options, ToyGuesses guesses, bool wrong) {
  Sampler sampler(options), guesser(options);
  std::vector<TokenId> text{0};
  while (text.size() < 4) {
    const size_t known = text.size();
    for (size_t i = known; i < 4 && guesses != ToyGuesses::none && i < known + 2; ++i)
      text.push_back(guesses == ToyGuesses::blind
                         ? TokenId(i % kToyTokens)
                         : guesser.draw(kToyGuesser[size_t(text.back())], text));
    if (wrong) {
      const auto probability = [&](const ToyModel& model, TokenId token) {
        const auto& logits = model[size_t(text[known - 1])];
        return std::exp(log_probabilities(logits, token).drawn);
      };
      const TokenId guess = text[known];
      text.resize(known);
      const double kept = probability(kToyTarget, guess) / probability(kToyGuesser, guess);
      text.push_back(uniform(options.seed, known) < kept
                         ? guess
                         : sampler.draw(kToyTarget[size_t(text.back())], text));
      continue;
    }
    const Draws draws =
        right_draws(text, int(text.size() - known) + 1,
                    [&](size_t, std::span<const TokenId> history) -> std::optional<TokenId> {
                      return sampler.draw(kToyTarget[size_t(history.back())], history);
                    });
    text.resize(known);
    text.insert(text.end(), draws.tokens.begin(), draws.tokens.end());
  }
  return {text[1], text[2], text[3]};
}

// How far counts are from what they should be (G = 2 sum of n ln(n / expected)), in standard
// deviations of a normal distribution that is as improbable (Wilson and Hilferty 1931).
double g_test(const std::vector<int>& counts, const std::vector<double>& law) {
  double g = 0, cells = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    cells += law[i] > 0;
    if (counts[i] > 0) g += 2 * counts[i] * std::log(counts[i] / (law[i] * kToyTexts));
  }
  const double df = cells - 1, spread = 2 / (9 * df);
  return (std::cbrt(g / df) - (1 - spread)) / std::sqrt(spread);
}

TEST_CASE("speculation: a million texts have the law of the model, whoever guesses") {
  SamplerOptions plain, narrow;
  plain.temperature = 1, plain.top_k = 0, plain.top_p = 1, plain.min_p = 0;
  narrow.temperature = 0.7, narrow.top_k = 3, narrow.top_p = 0.9, narrow.min_p = 0.1;
  for (const SamplerOptions& options : {plain, narrow}) {
    CAPTURE(options.temperature);
    // What a draw behind each token should be: of the tokens that are kept, by the definition.
    std::array<std::array<double, kToyTokens>, kToyTokens> step;
    for (size_t before = 0; before < kToyTokens; ++before) {
      Candidates kept;
      kept.assign(kToyTarget[before], options.top_k);
      if (options.top_p < 1) kept.keep_top_p(options.top_p);
      if (options.min_p > 0) kept.keep_min_p(options.min_p);
      kept.divide(options.temperature);
      step[before].fill(0);
      for (const Candidate& c : kept.sorted())
        step[before][size_t(c.token)] = std::exp(kept.log_probability(c.token));
    }
    std::vector<double> law;
    for (size_t i = 0; i < 64; ++i)
      law.push_back(step[0][i / 16] * step[i / 16][i / 4 % 4] * step[i / 4 % 4][i % 4]);
    const auto far = [&](ToyGuesses guesses, bool wrong) {
      std::vector<int> counts(64);
      SamplerOptions o = options;
      for (o.seed = 0; o.seed < kToyTexts; ++o.seed) {
        const auto [a, b, c] = toy_text(o, guesses, wrong);
        ++counts[size_t(a * 16 + b * 4 + c)];
      }
      return g_test(counts, law);
    };
    CHECK(std::abs(far(ToyGuesses::coupled, false)) < 4);
    if (options.top_k > 0) continue;
    CHECK(std::abs(far(ToyGuesses::none, false)) < 4);
    CHECK(far(ToyGuesses::coupled, true) > 20);
  }
  // Nor does a text change.
  for (plain.seed = 0; plain.seed < 1000; ++plain.seed)
    for (const ToyGuesses guesses : {ToyGuesses::coupled, ToyGuesses::blind})
      CHECK(toy_text(plain, guesses, false) == toy_text(plain, ToyGuesses::none, false));
}

TEST_CASE("speculation: how often draws agree is as the definition says, and as draws do") {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const double temperature : {0.5, 1.0, 2.0})
    for (const float noise : {0.0f, 0.3f, 2.0f, 9.0f}) {
      CAPTURE(noise);
      std::vector<float> p, q;
      for (int i = 0; i < 60; ++i) p.push_back(3 * normal(random)), q.push_back(p.back());
      for (float& x : q) x += noise * normal(random);
      std::vector<double> a, b;
      for (size_t i = 0; i < p.size(); ++i) {
        a.push_back(std::exp(p[i] / temperature)), b.push_back(std::exp(q[i] / temperature));
      }
      double coupled = 0, residual = 0, a_all = 0, b_all = 0;
      for (size_t i = 0; i < a.size(); ++i) a_all += a[i], b_all += b[i];
      for (size_t i = 0; i < a.size(); ++i) {
        double sum = 0;
        for (size_t k = 0; k < a.size(); ++k) sum += std::max(a[k] / a[i], b[k] / b[i]);
        coupled += 1 / sum, residual += std::min(a[i] / a_all, b[i] / b_all);
      }
      const SameDraws got = same_draws(p, q, temperature);
      CHECK(got.coupled == doctest::Approx(coupled).epsilon(1e-9));
      CHECK(got.residual == doctest::Approx(residual).epsilon(1e-9));
      CHECK(got.coupled >= residual / (2 - residual) * (1 - 1e-9));
      SamplerOptions o;
      o.temperature = temperature, o.top_k = 0, o.top_p = 1, o.min_p = 0;
      constexpr int kDraws = 20000;
      int same = 0;
      for (o.seed = 0; o.seed < kDraws; ++o.seed) {
        Sampler one(o), other(o);
        same += one.draw(p, {}) == other.draw(q, {});
      }
      CHECK(std::abs(double(same) / kDraws - coupled) < 0.015);
    }
}

}  // namespace
}  // namespace chaski::test
