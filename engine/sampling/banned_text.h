// Texts that never come about: a token is not drawn if with it the text would hold one of them,
// wherever its tokens begin and end.
#pragma once
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

class BannedText {
 public:
  // `texts`: none of them empty.
  BannedText(const Tokenizer& tokenizer, std::vector<std::string> texts);
  // The tokens that must not follow. Found once for each beginning of a banned text that the
  // history may end with. Valid until the next call.
  const std::vector<TokenId>& after(std::span<const TokenId> history);

 private:
  std::string begun(std::span<const TokenId> history) const;
  bool completes(const std::string& begun, std::string_view piece) const;

  const Tokenizer& tokenizer_;
  const std::vector<std::string> texts_;
  size_t longest_ = 0;
  std::unordered_map<std::string, std::vector<TokenId>> found_;
};

}  // namespace chaski
