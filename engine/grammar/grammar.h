// A grammar over the vocabulary of a model: at each place of a text, which tokens may come next.
// Masks are kept by place, so a place that comes again costs a look-up. Control tokens are never
// allowed but those that end a text, and these exactly where the grammar may end.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/grammar/vocabulary.h"
#include "engine/passes/draft.h"

namespace chaski {

class Grammar {
 public:
  using Place = Recognizer::Place;
  // The tokenizer outlives it.
  Grammar(std::shared_ptr<const Rules> rules, const Tokenizer& tokenizer);

  struct Mask {
    int count = 0;               // of tokens that are allowed
    std::vector<TokenId> few;    // all of them, if they are few
    std::vector<uint64_t> bits;  // otherwise, by token
    bool has(TokenId token) const;
  };
  // Throws what Recognizer::step() throws.
  const Mask& mask(Place place);
  // At the beginning of a text before which nothing stands, where tokens have another text.
  const Mask& opening_mask();

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Rules& rules() const { return *rules_; }
  Recognizer& recognizer() { return recognizer_; }
  const TokenTrie& trie() const { return trie_; }

  // Places are numbers that hold until this changes: when too much is known, all is forgotten.
  int generation() const { return generation_; }
  void stay_small();

 private:
  Mask made();  // of bits_
  void set(TokenId token) { bits_[size_t(token) / 64] |= uint64_t(1) << token % 64; }

  std::shared_ptr<const Rules> rules_;
  const Tokenizer& tokenizer_;
  Recognizer recognizer_;
  TokenTrie trie_;
  std::vector<TokenId> end_tokens_;
  std::vector<uint64_t> bits_;
  std::unordered_map<Place, Mask> masks_;
  std::optional<Mask> opening_;
  size_t mask_bytes_ = 0;
  int generation_ = 0;
};

// One text under a grammar: it follows the tokens that were drawn, and guesses with them.
class GrammarText {
 public:
  // `opens`: nothing but control tokens stands before it, so its first token loses the space that
  // some tokenizers put in front of a text.
  GrammarText(Grammar& grammar, bool opens) : grammar_(grammar), opens_(opens) {}

  // The logits with those of tokens that are not allowed at minus infinity; valid until the next
  // call. `history` is all that stands before the drawn token: what was there at the last stand(),
  // and guesses that are allowed.
  std::span<const float> allowed(std::span<const float> logits, std::span<const TokenId> history);
  // The text so far ends a history of so many tokens.
  void stand(size_t history) { history_ = history; }
  void take(TokenId token);  // the text goes on with it
  // Whether nothing can follow.
  bool is_over() { return !grammar_.recognizer().goes_on(here()); }

  // Tokens for bytes of which the grammar leaves no choice, as long ones as fit. Where the mask
  // leaves one token they are right; elsewhere others might make up the same bytes.
  std::vector<TokenId> foretold(int most);
  // How many of so many of them were right.
  void learn(int guesses, int right) { foretold_ += guesses, right_ += right; }
  // The guesses that are allowed.
  Draft fitting(const Draft& draft);

 private:
  using Place = Grammar::Place;
  Place here();
  Place behind(Place place, TokenId token, bool first);

  Grammar& grammar_;
  const bool opens_;
  std::vector<TokenId> tokens_;
  size_t history_ = 0;
  Place place_ = Recognizer::kNowhere;
  int generation_ = -1, foretold_ = 0, right_ = 0;
  std::vector<float> logits_;
};

}  // namespace chaski
