// RWKV's "World" tokenizer: at each position the longest piece that the text continues with. There
// is no normalization, no word and no merge; a piece may have any bytes and end inside a character.
// Pieces are stored as Python writes the bytes between quotes: \t, \n, \r, \\, \', \" and \xNN.
// Source: the authors' package rwkv, rwkv_tokenizer.py (TRIE_TOKENIZER).
#include <algorithm>
#include <bitset>

#include "engine/text/tokenizer/pieces.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/tokenizer/word_cache.h"
#include "ggml-like-tensor/base/error.h"
#include "models/import/tokenizer/byte_literal.h"

namespace chaski {

namespace {

class RwkvTokenizer : public Tokenizer {
 public:
  explicit RwkvTokenizer(const Metadata& meta);

 private:
  void encode_run(std::string_view text, bool opens, WordCache& words) const override;
  // The longest piece that `text` begins with; there is one for each byte.
  TokenId longest(std::string_view text) const;

  std::vector<TokenId> sorted_;  // by text
};

RwkvTokenizer::RwkvTokenizer(const Metadata& meta) : Tokenizer(meta) {
  std::bitset<256> bytes;
  for (TokenId id = 0; id < size(); ++id) {
    if (is_control(id)) {
      bytes_.push_back("");
      recognise(id);
      continue;
    }
    const auto text = bytes_of_literal(tokens_[id]);
    if (!text)
      fail(Exit::bad_file,
           "{}: tokenizer.tokens[{}] is \"{}\", expected \\t, \\n, \\r, \\\\, a quote or two "
           "hexadecimal digits after each backslash",
           meta.origin, id, escaped(tokens_[id]));
    bytes_.push_back(*text);
    if (type(id) != TokenType::normal || text->empty()) continue;
    sorted_.push_back(id);
    if (text->size() == 1) bytes.set(static_cast<unsigned char>((*text)[0]));
  }
  for (size_t byte = 0; byte < bytes.size(); ++byte)
    if (!bytes[byte])
      fail(Exit::bad_file,
           "{}: tokenizer.tokens has no piece for the byte {:#04x}, expected all 256", meta.origin,
           byte);
  std::sort(sorted_.begin(), sorted_.end(),
            [&](TokenId a, TokenId b) { return std::pair(piece(a), a) < std::pair(piece(b), b); });
}

TokenId RwkvTokenizer::longest(std::string_view text) const {
  TokenId longest = -1;
  each_beginning(
      sorted_, [&](TokenId id) { return piece(id); }, text,
      [&](std::span<const TokenId> same) { longest = same.front(); });
  return longest;
}

void RwkvTokenizer::encode_run(std::string_view text, bool, WordCache& words) const {
  while (!text.empty()) {
    const TokenId id = longest(text);
    words.out().push_back(id);
    text.remove_prefix(piece(id).size());
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_rwkv_tokenizer(const Metadata& meta) {
  return std::make_unique<RwkvTokenizer>(meta);
}

}  // namespace chaski
