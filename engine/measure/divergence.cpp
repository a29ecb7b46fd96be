#include "engine/measure/divergence.h"

#include <algorithm>
#include <cmath>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

using Logits = std::span<const float>;

// sum of p ln(p / q). `p_sum` and `q_sum` are the log_of_sum() of each. Clamped at 0, because
// rounding could make it negative if both are equal.
double kl_of(Logits p, double p_sum, Logits q, double q_sum) {
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double ln_p = double(p[i]) - p_sum;
    kl += std::exp(ln_p) * (ln_p - (double(q[i]) - q_sum));
  }
  return std::max(kl, 0.0);
}

TokenId top(Logits logits) {
  return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void add(Divergence& d, Logits p, Logits q, TokenId token, std::string_view piece) {
  const double p_sum = log_of_sum(p), q_sum = log_of_sum(q);
  const double p_surprise = p_sum - double(p[size_t(token)]),
               q_surprise = q_sum - double(q[size_t(token)]);
  d.base.add(p_surprise, piece), d.model.add(q_surprise, piece);
  d.places.push_back({kl_of(p, p_sum, q, q_sum), token, top(p), top(q)});
  const TokenDivergence& here = d.places.back();
  d.kl.add(here.kl);
  d.same_top.add(here.base_top == here.model_top ? 1 : 0);
  const double shift = std::exp(-q_surprise) - std::exp(-p_surprise);
  d.square.add(shift * shift);
}

}  // namespace

double divergence(std::span<const float> p, std::span<const float> q) {
  return kl_of(p, log_of_sum(p), q, log_of_sum(q));
}

// Gumbel noise makes a draw a race of exponential clocks. Both models draw token i if its clock
// rings first in both races, which has probability 1 / sum over j of max(p_j / p_i, q_j / q_i).
// With tokens sorted by p / q, the sum is one over p for the tokens before i, and one over q from i
// on. Tokens that are less probable than e^-40 of the top one in both models are left out.
SameDraws same_draws(std::span<const float> p, std::span<const float> q, double temperature) {
  struct Both {
    double log_ratio, p, q;  // log_ratio: ln of p / q, up to a constant
  };
  const double p_most = *std::max_element(p.begin(), p.end()),
               q_most = *std::max_element(q.begin(), q.end());
  std::vector<Both> all;
  double p_all = 0, q_all = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double ln_p = (p[i] - p_most) / temperature, ln_q = (q[i] - q_most) / temperature;
    if (std::max(ln_p, ln_q) < -40) continue;
    all.push_back({ln_p - ln_q, std::exp(ln_p), std::exp(ln_q)});
    p_all += all.back().p, q_all += all.back().q;
  }
  std::sort(all.begin(), all.end(),
            [](const Both& a, const Both& b) { return a.log_ratio > b.log_ratio; });
  SameDraws out{0, 0};
  double p_before = 0, q_from = 1;
  for (Both& x : all) {
    x.p /= p_all, x.q /= q_all;
    if (x.p > 0 && x.q > 0) out.coupled += 1 / (p_before / x.p + std::max(q_from / x.q, 1.0));
    out.residual += std::min(x.p, x.q);
    p_before += x.p, q_from -= x.q;
  }
  return out;
}

double Divergence::rms() const { return std::sqrt(square.mean); }

double Divergence::rms_standard_error() const {
  return rms() > 0 ? square.standard_error() / (2 * rms()) : 0;
}

double median_kl(const Divergence& d) {
  if (d.places.empty()) return 0;
  std::vector<double> all;
  for (const TokenDivergence& place : d.places) all.push_back(place.kl);
  const auto middle = all.begin() + ptrdiff_t(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

Continuation greedy_continuation(Session& base, Session& model, std::span<const TokenId> prompt,
                                 int tokens) {
  const Tokenizer& tokenizer = base.engine().tokenizer();
  Continuation result;
  base.rewind(0), model.rewind(0);
  TokenId a = top(base.extend(prompt)), b = top(model.extend(prompt));
  while (int(result.same.size()) < tokens) {
    if (a != b) {
      result.base_and_model = {a, b};
      break;
    }
    result.same.push_back(a);
    if (tokenizer.is_end(a) || base.room() == 0 || model.room() == 0) break;
    a = top(base.decode(a)), b = top(model.decode(b));
  }
  return result;
}

void expect_same_tokens(const Engine& base, const Engine& model, std::string_view text) {
  const Tokenizer &a = base.tokenizer(), &b = model.tokenizer();
  const std::string as_base = fmt::format("as in {}", base.path());
  if (base.vocab_size() != model.vocab_size())
    fail(Exit::usage, "{}: the vocabulary has {} tokens, expected {} {}", model.path(),
         model.vocab_size(), base.vocab_size(), as_base);
  for (TokenId id = 0; id < base.vocab_size(); ++id)
    if (a.raw(id) != b.raw(id))
      fail(Exit::usage, "{}: token {} is \"{}\", expected \"{}\" {}", model.path(), id,
           escaped(b.raw(id)), escaped(a.raw(id)), as_base);
  const std::vector<TokenId> wanted = a.encode_prompt(text), found = b.encode_prompt(text);
  if (wanted != found) {
    const auto at = std::mismatch(wanted.begin(), wanted.end(), found.begin(), found.end()).first;
    fail(Exit::usage, "{}: the text has other tokens from number {} on, expected those {}",
         model.path(), at - wanted.begin() + 1, as_base);
  }
}

Divergence divergence(Session& base, Session& model, Session* twin, std::span<const TokenId> tokens,
                      int window, int windows, const OnCompared& on_compared,
                      std::optional<double> temperature) {
  const Tokenizer& tokenizer = base.engine().tokenizer();
  Divergence result;
  result.base.windows = result.model.windows = windows;
  std::vector<Session*> sessions{&base, &model};
  if (twin) sessions.push_back(twin);
  read_windows(
      sessions, tokens, window, windows,
      [&](auto logits, TokenId token) {
        add(result, logits[0], logits[1], token, tokenizer.piece(token));
        if (twin) result.floor.add(divergence(logits[0], logits[2]));
        if (!temperature) return;
        const SameDraws both = same_draws(logits[0], logits[1], *temperature);
        result.coupled.add(both.coupled), result.residual.add(both.residual);
      },
      [&](uint64_t read) { on_compared(result, read); });
  return result;
}

}  // namespace chaski
