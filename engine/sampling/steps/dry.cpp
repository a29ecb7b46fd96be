#include "engine/sampling/steps/dry.h"

#include <algorithm>
#include <map>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// Bounded, so that a long repetition does not become infinite.
double bounded_power(double base, size_t n) {
  constexpr double kMost = 1e9;
  double p = 1;
  for (size_t i = 0; i < n && p < kMost; ++i) p *= base;
  return std::min(p, kMost);
}

// For each position i the length of the longest common prefix of the text and its suffix from i on
// (the Z function, Gusfield 1997).
std::vector<size_t> common_prefixes(std::span<const TokenId> text) {
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

DryStep::State DryStep::prepare(const Tokenizer* tokenizer) const {
  ENSURE(tokenizer, "the breakers of DRY are texts, which need a tokenizer");
  State breaks(size_t(tokenizer->size()));
  for (TokenId id = 0; id < tokenizer->size(); ++id)
    for (const std::string& text : dry_breakers)
      if (tokenizer->piece(id).find(text) != std::string_view::npos) breaks[size_t(id)] = true;
  return breaks;
}

void DryStep::change(std::span<float> logits, std::span<const TokenId> history,
                     const State& breaks) const {
  std::vector<TokenId> reversed(history.rbegin(), history.rend());
  if (dry_window >= 0) reversed.resize(std::min(reversed.size(), size_t(dry_window)));
  const size_t most = size_t(std::find_if(reversed.begin(), reversed.end(),
                                          [&](TokenId token) { return breaks[size_t(token)]; }) -
                             reversed.begin());
  const std::vector<size_t> lengths = common_prefixes(reversed);
  std::map<TokenId, size_t> longest;  // the longest repetition that each token would continue
  for (size_t i = 1; i < reversed.size(); ++i) {
    const size_t length = std::min(lengths[i], most);
    if (length >= size_t(dry_allowed) && length > 0)
      longest[reversed[i - 1]] = std::max(longest[reversed[i - 1]], length);
  }
  for (const auto& [token, length] : longest)
    if (size_t(token) < logits.size())
      logits[size_t(token)] -=
          float(dry_multiplier * bounded_power(dry_base, length - size_t(dry_allowed)));
}

}  // namespace chaski
