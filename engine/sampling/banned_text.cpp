#include "engine/sampling/banned_text.h"

#include <algorithm>

namespace chaski {

BannedText::BannedText(const Tokenizer& tokenizer, std::vector<std::string> texts)
    : tokenizer_(tokenizer), texts_(std::move(texts)) {
  for (const std::string& text : texts_) longest_ = std::max(longest_, text.size());
}

// The longest suffix of the history that is a proper prefix of a banned text. All shorter such
// suffixes are suffixes of this one.
std::string BannedText::started(std::span<const TokenId> history) const {
  std::string tail;
  for (size_t i = history.size(); i > 0 && tail.size() + 1 < longest_; --i)
    tail.insert(0, tokenizer_.piece(history[i - 1]));
  for (size_t length = std::min(tail.size(), longest_ - 1); length > 0; --length) {
    const std::string_view end = std::string_view(tail).substr(tail.size() - length);
    for (const std::string& text : texts_)
      if (text.size() > length && text.starts_with(end)) return std::string(end);
  }
  return "";
}

bool BannedText::completes(const std::string& prefix, std::string_view piece) const {
  const std::string text = prefix + std::string(piece);
  return std::any_of(texts_.begin(), texts_.end(), [&](const std::string& banned) {
    const size_t from = prefix.size() + 1 > banned.size() ? prefix.size() + 1 - banned.size() : 0;
    return text.find(banned, from) != std::string::npos;
  });
}

const std::vector<TokenId>& BannedText::after(std::span<const TokenId> history) {
  const auto [at, is_new] = found_.try_emplace(started(history));
  if (is_new)
    for (TokenId id = 0; id < tokenizer_.size(); ++id)
      if (!tokenizer_.is_control(id) && completes(at->first, tokenizer_.piece(id)))
        at->second.push_back(id);
  return at->second;
}

}  // namespace chaski
