// How a token is drawn: each step compared with its definition, and whole draws with and without
// drafts.
#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "engine/drafting/drafter.h"
#include "engine/requests/generate.h"
#include "engine/sampling/steps/candidates.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

TEST_CASE("sampler: greedy, one candidate, penalties, and the distribution of draws") {
  const std::vector<float> logits{0.0f, 2.0f, 1.0f, -1.0f};
  SamplerOptions o;
  o.temperature = 0;
  CHECK(Sampler(o).draw(logits, {}) == 1);
  o.repeat_penalty = 4;
  const std::vector<TokenId> seen{1};
  CHECK(Sampler(o).draw(logits, seen) == 2);
  o = {};
  o.top_k = 1;
  CHECK(Sampler(o).draw(logits, {}) == 1);

  o = {};
  o.temperature = 1, o.top_k = 0, o.top_p = 1, o.min_p = 0;
  std::vector<int> counts(4);
  std::vector<TokenId> history;
  Sampler s(o);
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    history.push_back(0);
    ++counts[size_t(s.draw(logits, history))];
  }
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x));
  for (size_t i = 0; i < 4; ++i)
    CHECK(counts[i] / double(n) ==
          doctest::Approx(std::exp(double(logits[i])) / sum).epsilon(0.05));

  o.min_p = 0.3;  // keeps e^-1 of the best probability, but not e^-2
  std::vector<bool> drawn(4);
  Sampler narrow(o);
  for (int i = 0; i < 2000; ++i) {
    history.push_back(0);
    drawn[size_t(narrow.draw(logits, history))] = true;
  }
  CHECK(drawn == std::vector<bool>{false, true, true, false});
}

std::vector<float> random_logits(int n, unsigned seed, double spread = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, float(spread));
  std::vector<float> logits;
  for (int i = 0; i < n; ++i) logits.push_back(normal(random));
  return logits;
}

// The probability of each token.
std::vector<double> probabilities(const std::vector<float>& logits) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits) sum += p.emplace_back(std::exp(double(x)));
  for (double& x : p) x /= sum;
  return p;
}

using Kept = std::set<TokenId>;

Kept kept(Candidates& candidates) {
  Kept tokens;
  for (const Candidate& c : candidates.sorted()) tokens.insert(c.token);
  return tokens;
}

// The tokens in ascending order of `rank`, until the sum of their probabilities is p.
Kept until(const std::vector<double>& p, double wanted, const std::vector<double>& rank) {
  std::vector<TokenId> order(p.size());
  for (size_t i = 0; i < p.size(); ++i) order[i] = TokenId(i);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return rank[size_t(a)] < rank[size_t(b)]; });
  Kept out;
  double sum = 0;
  for (const TokenId t : order)
    if (out.empty() || sum < wanted) out.insert(t), sum += p[size_t(t)];
  return out;
}

TEST_CASE("sampler: candidates are the largest logits, and of equal ones the first tokens") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + random() % 40);  // with many equal ones
    for (float& x : logits) x = random() % 6 == 0 ? -INFINITY : float(random() % 5);
    logits[random() % logits.size()] = 1;
    std::vector<TokenId> all;
    for (size_t i = 0; i < logits.size(); ++i)
      if (logits[i] != -INFINITY) all.push_back(TokenId(i));
    std::ranges::stable_sort(all, [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
    for (const int k : {0, 1, 2, 7, 40, 100}) {
      Candidates candidates;
      candidates.assign(logits, k);
      std::vector<TokenId> found;
      for (const Candidate& c : candidates.sorted()) found.push_back(c.token);
      CHECK(found == std::vector(all.begin(),
                                 k > 0 && size_t(k) < all.size() ? all.begin() + k : all.end()));
    }
  }
}

TEST_CASE("sampler: each step keeps the tokens of its definition") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const std::vector<float> logits = random_logits(2 + int(seed) * 3, seed);
    const std::vector<double> p = probabilities(logits);
    const double most = *std::max_element(p.begin(), p.end());
    double entropy = 0, mean = 0, squares = 0;
    std::vector<double> less, odd;
    for (const double x : p) entropy -= x * std::log(x), less.push_back(-x);
    for (const double x : p) odd.push_back(std::abs(-std::log(x) - entropy));
    for (const float x : logits) mean += x / double(p.size());
    for (const float x : logits) squares += (x - mean) * (x - mean) / double(p.size());
    const auto where = [&](auto holds) {
      Kept out;
      for (size_t i = 0; i < p.size(); ++i)
        if (holds(i)) out.insert(TokenId(i));
      return out;
    };
    Candidates c;
    const auto after = [&](auto step) {
      c.assign(logits, 0);
      step();
      return kept(c);
    };
    const std::vector<double> ones(p.size(), 1);
    CHECK(after([&] { TopKStep{3}.narrow(c, {}); }) == until(ones, 3, less));
    for (const double wanted : {0.05, 0.5, 0.9}) {
      CHECK(after([&] { TopPStep{wanted}.narrow(c, {}); }) == until(p, wanted, less));
      CHECK(after([&] { TypicalStep{wanted}.narrow(c, {}); }) == until(p, wanted, odd));
      CHECK(after([&] { MinPStep{wanted}.narrow(c, {}); }) ==
            where([&](size_t i) { return p[i] >= wanted * most; }));
    }
    const float largest = *std::max_element(logits.begin(), logits.end());
    CHECK(after([&] { TopNSigmaStep{1.5}.narrow(c, {}); }) ==
          where([&](size_t i) { return logits[i] >= largest - 1.5 * std::sqrt(squares); }));
    double last = 2;  // the least probable of the top tokens
    for (const double x : p)
      if (x >= 0.02) last = std::min(last, x);
    CHECK(after([&] {
            XtcStep{1, 0.02}.narrow(c, {});
          }) == where([&](size_t i) { return p[i] <= last; }));
    CHECK(after([&] { c.keep_within(4); }) ==
          where([&](size_t i) { return p[i] == most || -std::log2(p[i]) <= 4; }));
    c.assign(logits, 0);
    CHECK(c.relative_entropy() ==
          doctest::Approx(entropy / std::log(double(p.size()))).epsilon(1e-9));
    CHECK(c.log_probability(1) == doctest::Approx(std::log(p[1])).epsilon(1e-9));
  }
}

// The definition: for each earlier token, the length of the match between the tokens before it and
// the end of the text.
std::map<TokenId, size_t> repetitions(const std::vector<TokenId>& text,
                                      const std::vector<bool>& breaks) {
  std::map<TokenId, size_t> longest;
  for (size_t next = 1; next < text.size(); ++next) {
    size_t n = 0;
    while (n < next && text[next - 1 - n] == text[text.size() - 1 - n] &&
           !breaks[size_t(text[next - 1 - n])])
      ++n;
    if (n > 0) longest[text[next]] = std::max(longest[text[next]], n);
  }
  return longest;
}

TEST_CASE(
    "sampler: penalties count the last tokens, and DRY penalizes tokens that continue a "
    "repetition") {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const int vocab = 3 + round % 5;
    std::vector<TokenId> text;
    for (int i = 0; i < 1 + round; ++i) text.push_back(TokenId(random() % unsigned(vocab)));
    const std::vector<float> logits = random_logits(vocab, unsigned(round));
    std::vector<bool> breaks(size_t(vocab), false);
    breaks[0] = round % 2 == 0;

    const DryStep dry{.dry_multiplier = 0.5, .dry_base = 1.5, .dry_allowed = 2};
    std::vector<float> got = logits;
    dry.change(got, text, breaks);
    std::vector<float> want = logits;
    for (const auto& [token, n] : repetitions(text, breaks))
      if (n >= 2) want[size_t(token)] -= float(0.5 * std::pow(1.5, double(n - 2)));
    for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]));

    const PenaltiesStep p{.repeat_penalty = 1.5,
                          .presence_penalty = 0.25,
                          .frequency_penalty = 0.125,
                          .penalty_window = 7};
    got = want = logits;
    p.change(got, text);
    for (size_t i = 0; i < want.size(); ++i) {
      const auto n =
          std::count(text.end() - std::min<ptrdiff_t>(7, std::ssize(text)), text.end(), TokenId(i));
      if (n > 0)
        want[i] = (want[i] > 0 ? want[i] / 1.5f : want[i] * 1.5f) - 0.25f - 0.125f * float(n);
      CHECK(got[i] == doctest::Approx(want[i]));
    }
  }
  // The penalty of a repetition of a thousand tokens is finite.
  std::vector<float> logits(2);
  DryStep{.dry_multiplier = 1}.change(logits, std::vector<TokenId>(1000, 1), {false, false});
  CHECK(std::isfinite(logits[1]));
  CHECK(logits[1] < -1e8f);
}

GenerateResult story(const SamplerOptions& sampling, bool guesses, int tokens = 120) {
  static const std::shared_ptr<Engine> engine = Engine::open({});
  GenerateOptions o;
  o.sampling = sampling, o.max_tokens = tokens, o.ignore_end = true;
  const auto drafter = ngram_drafter();
  if (guesses) o.drafter = drafter.get(), o.draft_length = 4;
  const auto prompt = engine->tokenizer().encode_prompt(
      "Tim had a red ball. Tim had a red ball. Tim had a red ball. Tim had");
  return generate(*engine->session(), prompt, o, [](std::string_view) {});
}

TEST_CASE("sampler: with any settings, drafts change no token") {
  std::vector<SamplerOptions> all(12);
  all[0].typical = 0.5;
  all[1].top_n_sigma = 1;
  all[2].xtc_probability = 0.5, all[2].xtc_threshold = 0.05;
  all[3].temperature_range = 0.7;
  all[4].mirostat = 2, all[4].mirostat_target = 2;
  all[5].presence_penalty = 0.5, all[5].frequency_penalty = 0.2;
  all[6].dry_multiplier = 0.8;
  all[7].bias = {{300, 2.0}, {301, -INFINITY}};
  all[8].banned = {"ball", "Tim"};
  all[9].steps = {kStep<TemperatureStep>, kStep<MinPStep>, kStep<TopPStep>};
  all[9].temperature = 1.5;
  all[10].repeat_penalty = 1.2, all[10].penalty_window = -1, all[10].temperature = 0;
  all[11].steps = {};
  std::set<std::string> texts;
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    all[i].seed = 11;
    const GenerateResult with = story(all[i], true), without = story(all[i], false);
    CHECK(with.tokens == without.tokens);
    CHECK(with.accepted > 0);
    texts.insert(without.text);
  }
  CHECK(texts.size() == all.size());  // each setting has an effect
}

TEST_CASE("sampler: a banned text is not generated by any sequence of tokens") {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    SamplerOptions o;
    o.seed = seed;
    o.banned = {"ball", " a", "e s", "mom", "\n"};
    const std::string text = story(o, seed % 2 == 0, 300).text;
    for (const std::string& banned : o.banned) CHECK(text.find(banned) == std::string::npos);
    CHECK(text.size() > 300);
  }
}

TEST_CASE("sampler: Mirostat keeps the surprise of its draws near the target") {
  for (const double target : {2.0, 3.0, 4.0}) {
    CAPTURE(target);
    SamplerOptions o;
    o.temperature = 1, o.mirostat = 2, o.mirostat_target = target, o.seed = 3;
    Sampler sampler(o);
    std::vector<TokenId> history;
    double bits = 0;
    const int n = 4000;
    for (int i = 0; i < n; ++i) {
      const std::vector<float> logits = random_logits(500, unsigned(i), 2.5);
      const TokenId token = sampler.draw(logits, history);
      bits -= std::log2(probabilities(logits)[size_t(token)]) / n;
      history.push_back(token);
    }
    // The target holds for the surprise among the kept tokens. The surprise among all tokens is at
    // least as large.
    CHECK(bits > target);
    CHECK(bits < target + 1.5);
  }
}

TEST_CASE("sampler: a device draws if only logits are needed, in its order of steps") {
  const auto plain = [](auto change) {
    SamplerOptions o;
    change(o);
    return Sampler(o).plain();
  };
  const auto usual = plain([](auto&) {});
  REQUIRE(usual);
  CHECK(usual->temperature == 0.8);
  CHECK(usual->top_k == 40);
  CHECK(usual->top_p == 0.95);
  CHECK(usual->min_p == 0.05);
  const auto few = plain([](auto& o) { o.steps = {kStep<TopKStep>}; });
  REQUIRE(few);
  CHECK(few->temperature == 1);
  CHECK(few->top_p == 1);
  CHECK(few->min_p == 0);
  CHECK(plain([](auto& o) { o.temperature = 0, o.typical = 0.5; }));
  CHECK(!plain([](auto& o) { o.steps = {kStep<MinPStep>, kStep<TopKStep>}; }));
  CHECK(!plain([](auto& o) { o.bias = {{1, 1.0}}, o.temperature = 0; }));
  CHECK(!plain([](auto& o) { o.presence_penalty = 1, o.temperature = 0; }));
}

}  // namespace
}  // namespace chaski::test
