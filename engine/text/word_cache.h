// A text says most of its words more than once. Their tokens are worked out the first time and
// copied from there afterwards.
#pragma once
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/tokenizer.h"

namespace chaski {

// For one text, which stays where it is meanwhile, and one list of tokens that only grows.
class WordCache {
 public:
  explicit WordCache(std::vector<TokenId>& out) : out_(out) {}

  // Appends the tokens of `word`: encode() appends them if it is new.
  template <class Encode>
  void append(std::string_view word, Encode encode) {
    const auto [at, is_new] = places_.try_emplace(word);
    Place& place = at->second;
    if (is_new) {
      place.begin = out_.size();
      encode();
      place.count = out_.size() - place.begin;
      return;
    }
    for (size_t i = 0; i < place.count; ++i) {
      const TokenId token = out_[place.begin + i];  // a copy: out_ may move
      out_.push_back(token);
    }
  }

 private:
  struct Place {
    size_t begin = 0, count = 0;
  };
  std::vector<TokenId>& out_;
  std::unordered_map<std::string_view, Place> places_;
};

}  // namespace chaski
