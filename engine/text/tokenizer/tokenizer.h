// Text to tokens and back, as the model's own tokenizer does it. Four kinds: "spm" and "unigram"
// (SentencePiece by joins and by the best path, tokenizer_spm.cpp), "bpe" (byte-level BPE by merge
// ranks, tokenizer_bpe.cpp) and "wordpiece" (BERT's, tokenizer_wordpiece.cpp).
// What is common stands here: the vocabulary and its types, control tokens, decoding. Conversations
// are chat_template.h's; whole characters from a stream of tokens are utf8.h's.
//
// One rule above the others: text that a user typed never becomes a control token, whatever it
// spells.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/normalizer.h"
#include "ggml-like-tensor/base/hash_index.h"
#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

using TokenId = int32_t;

enum class TokenType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

class WordCache;  // word_cache.h: words that came before, and the tokens so far

class Tokenizer {
 public:
  // From the keys tokenizer.* (metadata.h). Throws Error(bad_file) where they contradict each
  // other.
  static std::unique_ptr<Tokenizer> make(const Metadata& meta);
  // Whether there is a tokenizer in the metadata, be it one that make() refuses.
  static bool described(const Metadata& meta);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  // All of these may be called by several threads at once, and the text may be invalid UTF-8.
  // For what a user typed. Adds no token in front or behind.
  std::vector<TokenId> encode(std::string_view text) const;
  // For a template: where the text spells a control token, it becomes that token.
  std::vector<TokenId> encode_with_control(std::string_view text) const;
  // encode(), with the token that begins a text (BOS) in front if the model wants one.
  std::vector<TokenId> encode_prompt(std::string_view text) const;
  // encode_prompt(), and behind it the token that closes a text if the model wants one: for whole
  // texts, which nothing is to continue.
  std::vector<TokenId> encode_whole(std::string_view text) const;

  // A text of several origins, encoded as the one text that the parts make together.
  struct Part {
    std::string_view text;
    // Control tokens that it spells are recognised, but none that begins or ends outside of it.
    bool trusted = false;
    // No token may cross the border to the part before, so that the tokens of that part stay the
    // same whatever this one says.
    bool apart = false;
  };
  std::vector<TokenId> encode_parts(std::span<const Part> parts) const;

  // Control tokens give nothing. For spm the space that encode() put at the start of the text is
  // taken away again.
  std::string decode(std::span<const TokenId> tokens) const;
  // The bytes of one token in the middle of a text. They may be a part of a character only (see
  // Utf8Stream). A model may have more rows of logits than there are tokens: here and below, the id
  // of such a row is that of an unused token without text.
  std::string_view piece(TokenId id) const { return has(id) ? bytes_[id] : std::string_view(); }
  // as stored in the file
  std::string_view raw(TokenId id) const { return has(id) ? tokens_[id] : std::string_view(); }
  std::optional<TokenId> find(std::string_view raw) const;

  // What the file says that was passed over, as a line for the user; mostly empty.
  const std::string& remark() const { return remark_; }
  int size() const { return static_cast<int>(tokens_.size()); }
  // -1 where there is no such token.
  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  TokenId unk() const { return unk_; }
  bool adds_bos() const { return adds_bos_; }
  bool is_end(TokenId id) const;  // the model has finished its answer
  bool is_control(TokenId id) const { return type(id) == TokenType::control; }
  TokenType type(TokenId id) const { return has(id) ? types_[id] : TokenType::unused; }

 protected:
  explicit Tokenizer(const Metadata& meta);
  // Appends the tokens of a normalized text that holds no control or user-defined token. `opens`
  // says that the text stands at the beginning, or right behind a control token.
  virtual void encode_run(std::string_view text, bool opens, WordCache& words) const = 0;

  bool has(TokenId id) const { return id >= 0 && id < size(); }
  void recognise(TokenId id);  // the token is found in text by its spelling

  Texts tokens_;  // as stored
  Texts bytes_;   // as decoded; the subclass appends them one after the other
  std::vector<TokenType> types_;
  TokenId bos_ = -1, eos_ = -1, unk_ = -1;
  bool adds_bos_ = false, adds_eos_ = false, space_prefix_ = false;
  std::string remark_;

 private:
  void read_types(const Metadata& meta);
  void read_ends(const Metadata& meta);
  TokenId id_at(const Metadata& meta, const std::string& key, TokenId otherwise) const;
  std::string_view spelling(TokenId id) const;
  void sort_spellings();  // once, when all are known
  TokenId spelling_at(std::string_view text, bool trusted) const;

  Normalizer normalizer_;
  TextIndex by_raw_;
  std::vector<TokenId> ends_;
  std::vector<TokenId> spellings_;  // of recognised tokens, in the order of their texts
  // Whether one of them begins with these two bytes, or is the first of them alone.
  std::vector<bool> begins_ = std::vector<bool>(1 << 16);
};

// One per kind; make() chooses.
std::unique_ptr<Tokenizer> make_spm_tokenizer(const Metadata& meta);
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const Metadata& meta);
std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(const Metadata& meta);

}  // namespace chaski
