// The tokens that a grammar may allow, as a trie of their bytes that lies in one array: a node, all
// that begins with it, then its next sibling. One walk along it, together with a recognizer, finds
// all tokens that fit, and leaves out at once what begins with a byte that does not.
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
  // Whether the token is one of them: it has text, and is neither control nor the end of a text.
  static bool takes(const Tokenizer& tokenizer, TokenId token);

  // Sets the bits of those that are allowed at a place: of a vector of bit_words().
  void allow(Recognizer& recognizer, Recognizer::Place from, std::vector<uint64_t>& bits);
  size_t bit_words() const { return size_t(none_) / 64 + 1; }
  // The longest token that `bytes` begin with, and how many of them it has; none: -1, 0.
  std::pair<TokenId, size_t> longest(std::string_view bytes) const;

 private:
  struct Node {
    uint32_t behind;  // the node behind all that begins with this one
    TokenId token;    // that ends here, or none_
    uint16_t depth;   // bytes in front of its own
    uint8_t byte;
    bool has_more;  // more tokens have this text
  };
  std::vector<Node> nodes_;
  std::multimap<uint32_t, TokenId> more_;  // by node
  TokenId none_;                           // behind the last token
  struct Step {
    Recognizer::Place place;
    const Recognizer::Row* row;
  };
  std::vector<Step> path_;  // of a walk
};

}  // namespace chaski
