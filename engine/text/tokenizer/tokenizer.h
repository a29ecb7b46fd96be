// Text to tokens and back, exactly as the model's own tokenizer does it. The kinds are "spm" and
// "unigram" (SentencePiece by joins and by the best path, tokenizer_spm.cpp), "bpe" (byte-level BPE
// by merge ranks, tokenizer_bpe.cpp) and "wordpiece" (BERT's, tokenizer_wordpiece.cpp). RWKV and
// PLaMo 2 have tokenizers of their own, "rwkv" (longest match, tokenizer_rwkv.cpp) and "plamo2"
// (best path, tokenizer_plamo2.cpp). This class has what all share: the vocabulary and its types,
// control tokens, decoding. chat_template.h handles conversations, and utf8.h makes whole
// characters from a stream of tokens.
//
// Text typed by a user never becomes a control token, whatever it spells, unless the user asks for
// it by Spelled::control. This rule has priority.
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

// What a control token spelled in a text is read as.
enum class Spelled { text, control };

class WordCache;  // caches the tokens of words; also holds the output tokens

class Tokenizer {
 public:
  // Reads the keys tokenizer.* (metadata.h). Throws Error(bad_file) if they contradict each other.
  static std::unique_ptr<Tokenizer> make(const Metadata& meta);
  // True if the metadata has a tokenizer, even one that make() refuses.
  static bool described(const Metadata& meta);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  // The following functions may be called by several threads, and the text may be invalid UTF-8.
  // encode() is for text of a user; it adds no token at either end.
  std::vector<TokenId> encode(std::string_view text) const;
  // For a template: a control token spelled in the text becomes that token.
  std::vector<TokenId> encode_with_control(std::string_view text) const;
  // encode() with BOS in front, if the model wants one and Spelled::control has not found it there.
  std::vector<TokenId> encode_prompt(std::string_view text, Spelled as = Spelled::text) const;
  // encode_prompt() followed by the token that closes a text, if the model wants one. For whole
  // texts that are not continued.
  std::vector<TokenId> encode_whole(std::string_view text, Spelled as = Spelled::text) const;
  // The control tokens that are spelled in the text, each once, in their order there.
  std::vector<TokenId> control_tokens_in(std::string_view text) const;

  // A part of a text. All parts are encoded as the one text that they make together.
  struct Part {
    std::string_view text;
    // Control tokens spelled in this part are recognised, but only if they lie within it.
    bool trusted = false;
    // No token may cross the border to the part before, so that the tokens of that part do not
    // depend on this one.
    bool apart = false;
  };
  std::vector<TokenId> encode_parts(std::span<const Part> parts) const;

  // Control tokens produce no text. For spm, the space that encode() added at the start is removed.
  std::string decode(std::span<const TokenId> tokens) const;
  // The bytes of one token in the middle of a text, which may be part of a character (see
  // Utf8Stream). A model may have more rows of logits than tokens. Here and below, the id of such a
  // row is an unused token without text.
  std::string_view piece(TokenId id) const { return has(id) ? bytes_[id] : std::string_view(); }
  // as stored in the file
  std::string_view raw(TokenId id) const { return has(id) ? tokens_[id] : std::string_view(); }
  std::optional<TokenId> find(std::string_view raw) const;

  // A message about ignored data in the file; usually empty.
  const std::string& remark() const { return remark_; }
  int size() const { return static_cast<int>(tokens_.size()); }
  // -1 if there is no such token.
  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  TokenId unk() const { return unk_; }
  bool adds_bos() const { return adds_bos_; }
  bool is_end(TokenId id) const;  // the token ends an answer
  bool is_control(TokenId id) const { return type(id) == TokenType::control; }
  TokenType type(TokenId id) const { return has(id) ? types_[id] : TokenType::unused; }

 protected:
  explicit Tokenizer(const Metadata& meta);
  // Appends to words.out() the tokens of `text`, which is normalized and holds no control or
  // user-defined tokens. `opens`: the text is at the beginning or directly after a control token.
  virtual void encode_run(std::string_view text, bool opens, WordCache& words) const = 0;

  bool has(TokenId id) const { return id >= 0 && id < size(); }
  void recognise(TokenId id);  // from now on the token is recognised in text by its spelling

  Texts tokens_;  // as stored
  Texts bytes_;   // as decoded; the subclass appends them in order of ids
  std::vector<TokenType> types_;
  TokenId bos_ = -1, eos_ = -1, unk_ = -1;
  bool adds_bos_ = false, adds_eos_ = false, space_prefix_ = false;
  std::string remark_;

 private:
  void read_types(const Metadata& meta);
  void read_ends(const Metadata& meta);
  TokenId id_at(const Metadata& meta, const std::string& key, TokenId otherwise) const;
  std::string_view spelling(TokenId id) const;
  void sort_spellings();  // called once, after all are known
  TokenId spelling_at(std::string_view text, bool trusted) const;

  Normalizer normalizer_;
  TextIndex by_raw_;
  std::vector<TokenId> ends_;
  std::vector<TokenId> spellings_;  // of recognised tokens, sorted by text
  // True for the first two bytes of each of these texts, and for a text of a single byte.
  std::vector<bool> begins_ = std::vector<bool>(1 << 16);
};

// One per kind; make() chooses.
std::unique_ptr<Tokenizer> make_spm_tokenizer(const Metadata& meta);
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const Metadata& meta);
std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(const Metadata& meta);
std::unique_ptr<Tokenizer> make_rwkv_tokenizer(const Metadata& meta);
std::unique_ptr<Tokenizer> make_plamo2_tokenizer(const Metadata& meta);

}  // namespace chaski
