// The tokens that a grammar may allow, as a trie of their bytes in one array: a node, its subtree,
// then its next sibling. One walk along the array together with a recognizer finds all tokens that
// fit. It skips the subtree of each byte that does not fit. Any number of threads may use a trie.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "engine/grammar/recognizer.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

class TokenTrie {
 public:
  explicit TokenTrie(const Tokenizer& tokenizer);
  // Whether the token is in the trie: it has text, and is neither a control nor an end token.
  static bool takes(const Tokenizer& tokenizer, TokenId token);

  // Sets the bits of the tokens that are allowed at a place; `bits` has bit_words() words.
  void allow(Recognizer& recognizer, Recognizer::Place from, std::vector<uint64_t>& bits) const;
  size_t bit_words() const { return size_t(none_) / 64 + 1; }
  // The longest token that is a prefix of `bytes`, and its length; -1 and 0 if there is none.
  std::pair<TokenId, size_t> longest(std::string_view bytes) const;

 private:
  struct Node {
    uint32_t next;   // the node after the subtree of this one
    TokenId token;   // the token that ends here, or none_
    uint16_t depth;  // bytes before its own
    uint8_t byte;
    bool has_more;  // more tokens have the same text
  };
  std::vector<Node> nodes_;
  std::multimap<uint32_t, TokenId> more_;  // the further tokens, by node
  TokenId none_;                           // the id after the last token
  size_t longest_ = 0;                     // bytes of the longest token
};

}  // namespace chaski
