// Texts that must never occur. A token is not drawn if it would complete one of them, wherever
// token borders are.
#pragma once
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

class BannedText {
 public:
  // No text may be empty.
  BannedText(const Tokenizer& tokenizer, std::vector<std::string> texts);
  // The tokens that must not follow, valid until the next call. They are computed once for each
  // prefix of a banned text with which the history ends.
  const std::vector<TokenId>& after(std::span<const TokenId> history);

 private:
  std::string started(std::span<const TokenId> history) const;
  bool completes(const std::string& prefix, std::string_view piece) const;

  const Tokenizer& tokenizer_;
  const std::vector<std::string> texts_;
  size_t longest_ = 0;
  std::unordered_map<std::string, std::vector<TokenId>> found_;
};

}  // namespace chaski
