// Speculative decoding: accepted draft tokens do not change the distribution of texts, and the
// agreement of two models' draws is known.
#include <array>
#include <cmath>
#include <random>

#include "engine/measure/divergence.h"
#include "engine/session/accept_draft.h"
#include "ggml-like-tensor/noise.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

// A vocabulary of four tokens, a model whose logits depend on the previous token, and a draft
// model.
constexpr int kToyTokens = 4, kToyTexts = 1 << 20;
using ToyModel = std::array<std::array<float, kToyTokens>, kToyTokens>;
constexpr ToyModel kToyTarget =
                       {{{0, 1, -1, 0.5f}, {2, 0, 0, -1}, {-0.5f, 0, 0.5f, 1}, {0, 0, 3, 1}}},
                   kToyGuesser = {{{1, 1, -1, 0}, {1, 0, 1, -1}, {0, 0, 0, 0}, {0, 2, 1, 0}}};

enum class ToyGuesses { none, coupled, blind, tree };

// Draws three tokens after token 0. Draft tokens are verified by accept_draft(). If `wrong` is set,
// an incorrect rule is used: a draft token is accepted with probability min(1, p / q), and
// otherwise the model draws without excluding the rejected token.
std::array<TokenId, 3> toy_text(const SamplerOptions& options, ToyGuesses guesses, bool wrong) {
  Sampler sampler(options), guesser(options);
  std::vector<TokenId> text{0};
  const auto guessed = [&](bool blind) {
    std::vector<TokenId> said = text;
    while (said.size() < std::min<size_t>(text.size() + 2, 4))
      said.push_back(blind ? TokenId(said.size() % kToyTokens)
                           : guesser.draw(kToyGuesser[size_t(said.back())], said));
    said.erase(said.begin(), said.begin() + ptrdiff_t(text.size()));
    return said;
  };
  while (text.size() < 4) {
    if (wrong) {
      // how much more probable the target finds a token than the guesser, after each token
      static const auto ratios = [] {
        std::array<std::array<double, kToyTokens>, kToyTokens> all;
        for (size_t before = 0; before < kToyTokens; ++before)
          for (size_t token = 0; token < kToyTokens; ++token)
            all[before][token] =
                std::exp(log_probabilities(kToyTarget[before], TokenId(token)).drawn) /
                std::exp(log_probabilities(kToyGuesser[before], TokenId(token)).drawn);
        return all;
      }();
      const TokenId guess = guessed(false)[0];
      const double kept = ratios[size_t(text.back())][size_t(guess)];
      text.push_back(uniform(options.seed, text.size()) < kept
                         ? guess
                         : sampler.draw(kToyTarget[size_t(text.back())], text));
      continue;
    }
    Draft draft;
    if (guesses == ToyGuesses::blind || guesses == ToyGuesses::tree) draft.add(guessed(true));
    if (guesses == ToyGuesses::coupled || guesses == ToyGuesses::tree) draft.add(guessed(false));
    const auto draw = [&](size_t, std::span<const TokenId> history) -> std::optional<TokenId> {
      return sampler.draw(kToyTarget[size_t(history.back())], history);
    };
    Draws draws;
    accept_draft(text, draft.nodes, draw, draws);
    text.push_back(draws.tokens.back());
  }
  return {text[1], text[2], text[3]};
}

// A G-test of counts against their expected values: G = 2 sum of n ln(n / expected). The result is
// converted to standard deviations of a normal distribution with the same probability (Wilson and
// Hilferty 1931).
double g_test(const std::vector<int>& counts, const std::vector<double>& law) {
  double g = 0, cells = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    cells += law[i] > 0;
    if (counts[i] > 0) g += 2 * counts[i] * std::log(counts[i] / (law[i] * kToyTexts));
  }
  const double df = cells - 1, spread = 2 / (9 * df);
  return (std::cbrt(g / df) - (1 - spread)) / std::sqrt(spread);
}

// How far the texts of these options are from the distribution that the definition of the sampler
// gives, in standard deviations (g_test).
double distance_of_toy_texts(const SamplerOptions& options, ToyGuesses guesses, bool wrong) {
  // The expected distribution after each token, over the kept tokens, by the definition.
  std::array<std::array<double, kToyTokens>, kToyTokens> step;
  for (size_t before = 0; before < kToyTokens; ++before) {
    Candidates kept;
    kept.assign(kToyTarget[before], options.top_k);
    if (options.top_p < 1) options.TopPStep::narrow(kept, {});
    if (options.min_p > 0) options.MinPStep::narrow(kept, {});
    kept.divide(options.temperature);
    step[before].fill(0);
    for (const Candidate& c : kept.sorted())
      step[before][size_t(c.token)] = std::exp(kept.log_probability(c.token));
  }
  std::vector<double> law;
  for (size_t i = 0; i < 64; ++i)
    law.push_back(step[0][i / 16] * step[i / 16][i / 4 % 4] * step[i / 4 % 4][i % 4]);
  std::vector<int> counts(64);
  SamplerOptions o = options;
  for (o.seed = 0; o.seed < kToyTexts; ++o.seed) {
    const auto [a, b, c] = toy_text(o, guesses, wrong);
    ++counts[size_t(a * 16 + b * 4 + c)];
  }
  return g_test(counts, law);
}

SamplerOptions plain_draws() {
  SamplerOptions plain;
  plain.temperature = 1, plain.top_k = 0, plain.top_p = 1, plain.min_p = 0;
  return plain;
}

// Four cases, so that they run side by side.
TEST_CASE("speculation: a million texts have the model's distribution, with a tree of drafts") {
  SamplerOptions plain = plain_draws();
  CHECK(std::abs(distance_of_toy_texts(plain, ToyGuesses::tree, false)) < 4);
  // The texts are also the same.
  for (plain.seed = 0; plain.seed < 1000; ++plain.seed)
    for (const ToyGuesses guesses : {ToyGuesses::coupled, ToyGuesses::blind, ToyGuesses::tree})
      CHECK(toy_text(plain, guesses, false) == toy_text(plain, ToyGuesses::none, false));
}

TEST_CASE("speculation: a million texts have the model's distribution, with few kept tokens") {
  SamplerOptions narrow;
  narrow.temperature = 0.7, narrow.top_k = 3, narrow.top_p = 0.9, narrow.min_p = 0.1;
  CHECK(std::abs(distance_of_toy_texts(narrow, ToyGuesses::tree, false)) < 4);
}

TEST_CASE("speculation: a million texts have the model's distribution, without drafts") {
  CHECK(std::abs(distance_of_toy_texts(plain_draws(), ToyGuesses::none, false)) < 4);
}

TEST_CASE("speculation: a million texts show an incorrect rule") {
  CHECK(distance_of_toy_texts(plain_draws(), ToyGuesses::coupled, true) > 20);
}

TEST_CASE(
    "speculation: the predicted agreement of draws equals the definition and the measured "
    "agreement") {
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
      constexpr int kDraws = 8000;
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
