// Most words of a text are repeated. Their tokens are computed once and then copied.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

// Belongs to one list of tokens that only grows.
class WordCache {
 public:
  explicit WordCache(std::vector<TokenId>& out) : out_(out) {}

  std::vector<TokenId>& out() { return out_; }
  // Appends the tokens of `word`. For a new word it calls encode(), which appends them.
  template <class Encode>
  void append(std::string_view word, Encode encode) {
    const auto known = places_.find(word);
    if (known == places_.end()) {
      const size_t begin = out_.size();
      encode();
      places_.emplace(word, Place{begin, out_.size() - begin});
      return;
    }
    for (size_t i = 0; i < known->second.count; ++i) {
      const TokenId token = out_[known->second.begin + i];  // a copy: out_ may move
      out_.push_back(token);
    }
  }

 private:
  struct Place {
    size_t begin, count;
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<TokenId>& out_;
  std::unordered_map<std::string, Place, Hash, std::equal_to<>> places_;
};

}  // namespace chaski
