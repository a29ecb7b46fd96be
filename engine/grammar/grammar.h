// A grammar over the vocabulary of a model: which tokens may come next at each place of a text.
// Masks are cached by place, so a place that occurs again costs a lookup. Control tokens are
// allowed only if the grammar names them; the end tokens where it may end. Any thread may make a
// grammar. It learns from each text, so only the thread that makes the passes uses it.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/grammar/distinct_items.h"
#include "engine/grammar/vocabulary.h"
#include "engine/passes/draft.h"

namespace chaski {

class Grammar {
 public:
  using Place = Recognizer::Place;
  // The tokenizer outlives it. `trie`: of this tokenizer, for many grammars; null: its own. Throws
  // an Error for a token of the grammar that the tokenizer does not have.
  Grammar(std::shared_ptr<const Rules> rules, const Tokenizer& tokenizer,
          std::shared_ptr<const TokenTrie> trie = nullptr);

  struct Mask {
    int count = 0;               // allowed tokens
    std::vector<TokenId> few;    // these tokens, if there are few
    std::vector<uint64_t> bits;  // otherwise a bit for each token of the vocabulary
    bool has(TokenId token) const;
  };
  // Throws what Recognizer::step() throws.
  const Mask& mask(Place place);
  // The mask of the first token of a text that nothing precedes. Some tokenizers decode that token
  // to another text.
  const Mask& opening_mask();

  // The place after `token` is read at `place`. `text` is what the token decodes to at this point
  // of the output.
  Place after(Place place, TokenId token, std::string_view text);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Rules& rules() const { return *rules_; }
  Recognizer& recognizer() { return recognizer_; }
  const TokenTrie& trie() const { return *trie_; }

  // Places are valid until this number changes: stay_small() clears all caches when they are too
  // large.
  int generation() const { return generation_; }
  void stay_small();

 private:
  Mask made();  // from bits_
  void allow_literals(Place place);
  void set(TokenId token) { bits_[size_t(token) / 64] |= uint64_t(1) << token % 64; }

  std::shared_ptr<const Rules> rules_;
  const Tokenizer& tokenizer_;
  Recognizer recognizer_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<TokenId> end_tokens_, literals_;  // literals_: as in Rules::literals()
  std::vector<uint64_t> bits_;
  std::unordered_map<Place, Mask> masks_;
  std::optional<Mask> opening_;
  size_t mask_bytes_ = 0;
  int generation_ = 0;
};

// One text under a grammar. It follows the drawn tokens, and draft tokens after them.
class GrammarText {
 public:
  // `opens`: only control tokens precede the text. Its first token then loses the space that some
  // tokenizers put before a text.
  GrammarText(Grammar& grammar, bool opens) : grammar_(grammar), opens_(opens) {}

  // The logits, with minus infinity for tokens that are not allowed; valid until the next call.
  // `history` holds all tokens before the drawn one: those of the last set_history(), and draft
  // tokens that are allowed.
  std::span<const float> allowed(std::span<const float> logits, std::span<const TokenId> history);
  // The number of tokens before the next draw, including the text so far.
  void set_history(size_t size) { history_ = size; }
  void take(TokenId token);  // appends it to the text
  // Whether the text cannot continue.
  bool is_over() { return !grammar_.recognizer().goes_on(here().place); }
  bool may_end() { return grammar_.recognizer().may_end(here().place); }
  // Whether the whole text `text` satisfies the grammar. It may be shorter than the tokens' text.
  bool accepts(std::string_view text);

  // Draft tokens for bytes that the grammar determines, each as long as possible, at most `most`.
  // They are certainly right where the mask has one token; elsewhere the model may draw other
  // tokens with the same bytes.
  std::vector<TokenId> forced(int most);
  // Counts how many of these draft tokens were accepted.
  void learn(int drafted, int accepted) { drafted_ += drafted, accepted_ += accepted; }
  // The part of a draft that is allowed.
  Draft fitting(const Draft& draft);

 private:
  using Place = Grammar::Place;
  // A place of the text, and what the grammar alone does not remember.
  struct Here {
    Place place;
    DistinctItems items;
  };
  Here here();
  // Its place is kNowhere if the token is not allowed.
  Here after(const Here& before, TokenId token, bool first);
  std::string text_of(TokenId token, bool first) const;
  void forbid_used_items(const Here& at, bool first);

  Grammar& grammar_;
  const bool opens_;
  std::vector<TokenId> tokens_;
  size_t history_ = 0;
  Here here_{Recognizer::kNowhere, {}};
  int generation_ = -1, drafted_ = 0, accepted_ = 0;
  std::vector<float> logits_;
};

}  // namespace chaski
