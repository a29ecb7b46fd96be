#include "engine/sampling/repetition.h"

#include <algorithm>
#include <map>

namespace chaski {

namespace {

std::span<const TokenId> last(std::span<const TokenId> history, int window) {
  return window < 0 ? history : history.last(std::min(history.size(), size_t(window)));
}

// Bounded, so that a long repetition makes no infinity.
double power(double base, size_t n) {
  constexpr double kMost = 1e9;
  double p = 1;
  for (size_t i = 0; i < n && p < kMost; ++i) p *= base;
  return std::min(p, kMost);
}

// By i: how many tokens from i on are those from the first on (the Z function of Gusfield 1997).
std::vector<size_t> common_beginnings(std::span<const TokenId> text) {
  std::vector<size_t> z(text.size());
  size_t left = 0, right = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < text.size() && text[z[i]] == text[i + z[i]]) ++z[i];
    if (i + z[i] > right) left = i, right = i + z[i];
  }
  return z;
}

}  // namespace

void penalize(std::span<float> logits, std::span<const TokenId> history, const Penalties& p) {
  std::map<TokenId, int> counts;
  for (const TokenId token : last(history, p.window)) ++counts[token];
  for (const auto& [token, count] : counts) {
    if (size_t(token) >= logits.size()) continue;  // of a tokenizer with more
    float& x = logits[size_t(token)];
    x = x > 0 ? float(x / p.repeat) : float(x * p.repeat);
    x = float(x - (p.presence + p.frequency * count));
  }
}

void penalize(std::span<float> logits, std::span<const TokenId> history, const Dry& dry,
              const std::vector<bool>& breaks) {
  std::vector<TokenId> reversed(history.rbegin(), history.rend());
  if (dry.window >= 0) reversed.resize(std::min(reversed.size(), size_t(dry.window)));
  const size_t most = size_t(std::find_if(reversed.begin(), reversed.end(),
                                          [&](TokenId token) { return breaks[size_t(token)]; }) -
                             reversed.begin());
  const std::vector<size_t> lengths = common_beginnings(reversed);
  std::map<TokenId, size_t> longest;  // by the token that came next
  for (size_t i = 1; i < reversed.size(); ++i) {
    const size_t length = std::min(lengths[i], most);
    if (length >= size_t(dry.allowed) && length > 0)
      longest[reversed[i - 1]] = std::max(longest[reversed[i - 1]], length);
  }
  for (const auto& [token, length] : longest)
    if (size_t(token) < logits.size())
      logits[size_t(token)] -=
          float(dry.multiplier * power(dry.base, length - size_t(dry.allowed)));
}

std::vector<bool> tokens_with(const Tokenizer& tokenizer, std::span<const std::string> texts) {
  std::vector<bool> with(size_t(tokenizer.size()));
  for (TokenId id = 0; id < tokenizer.size(); ++id)
    for (const std::string& text : texts)
      if (tokenizer.piece(id).find(text) != std::string_view::npos) with[size_t(id)] = true;
  return with;
}

}  // namespace chaski
