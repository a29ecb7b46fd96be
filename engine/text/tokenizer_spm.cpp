// SentencePiece BPE (Llama 2, Mistral, Gemma, Phi-3, llama2.c): spaces become U+2581, characters
// are joined by the scores of the pieces they make, and a character without a piece becomes its
// bytes <0xNN>. Kudo and Richardson, "SentencePiece" (2018). Its unigram kind is not here.
#include <algorithm>
#include <charconv>

#include "engine/text/pair_merge.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, a space inside a piece
// U+FFFD, what the unknown token reads as
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string with_spaces(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kSpace);
    out += space ? ' ' : piece[0];
    piece.remove_prefix(space ? kSpace.size() : 1);
  }
  return out;
}

// "<0x0A>" is 10; -1 for anything else.
int byte_of(std::string_view piece) {
  int value = -1;
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return error == std::errc() && end == piece.data() + 5 ? value : -1;
}

class SpmTokenizer : public Tokenizer {
 public:
  explicit SpmTokenizer(const Metadata& meta);

 private:
  void find_byte_types();
  void add(TokenId id, const Metadata& meta);
  void encode_run(std::string_view text, bool opens, std::vector<TokenId>& out) const override;
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;
  void spell_out(std::string_view text, std::vector<TokenId>& out) const;
  TokenId id_of(std::string_view text) const { return pieces_.find(tokens_, text); }

  Floats scores_;
  TextIndex pieces_;  // what text can become by joining: normal pieces only
  std::array<TokenId, 256> byte_ids_;
  // no piece has a space after a letter, so that no join reaches into the next word
  bool words_apart_ = true;
};

SpmTokenizer::SpmTokenizer(const Metadata& meta)
    : Tokenizer(meta), scores_(meta.floats("tokenizer.scores")), pieces_(tokens_.size()) {
  if (scores_.size() != tokens_.size())
    fail(Exit::bad_file, "{}: tokenizer.scores has {} entries, expected {}", meta.origin,
         scores_.size(), size());
  space_prefix_ = meta.boolean("tokenizer.add_space_prefix", true);
  byte_ids_.fill(-1);
  find_byte_types();
  for (TokenId id = 0; id < size(); ++id) add(id, meta);
  const bool all_bytes = std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
  if (!all_bytes && unk_ < 0)
    fail(Exit::bad_file,
         "{}: tokenizer.tokens has neither 256 byte tokens nor an unknown one, expected either",
         meta.origin);
}

// A file without types has to be read by the spelling.
void SpmTokenizer::find_byte_types() {
  if (std::find(types_.begin(), types_.end(), TokenType::byte) != types_.end()) return;
  for (TokenId id = 0; id < size(); ++id)
    if (byte_of(tokens_[id]) >= 0) types_[id] = TokenType::byte;
}

void SpmTokenizer::add(TokenId id, const Metadata& meta) {
  const std::string_view raw = tokens_[id];
  const int byte = byte_of(raw);
  switch (type(id)) {
    case TokenType::control:
      bytes_.push_back("");
      return recognise(id);
    case TokenType::unknown:
      return bytes_.push_back(kReplacement);
    case TokenType::byte:
      if (byte < 0)
        fail(Exit::bad_file, "{}: byte token {} is \"{}\", expected <0xNN>", meta.origin, id,
             escaped(raw));
      byte_ids_[byte] = id;
      return bytes_.push_back(std::string(1, static_cast<char>(byte)));
    default:
      bytes_.push_back(with_spaces(raw));
  }
  if (type(id) == TokenType::user_defined) recognise(id);
  if (type(id) != TokenType::normal) return;
  pieces_.put(tokens_, id);
  const std::string_view bytes = bytes_[id];
  const size_t letter = bytes.find_first_not_of(' ');
  if (letter != std::string::npos && bytes.find(' ', letter) != std::string::npos)
    words_apart_ = false;
}

void SpmTokenizer::encode_run(std::string_view text, bool opens, std::vector<TokenId>& out) const {
  std::string spaced;
  if (opens && space_prefix_) spaced += kSpace;
  for (char c : text) c == ' ' ? spaced += kSpace : spaced += c;
  if (!words_apart_) return encode_word(spaced, out);

  // The same tokens as from the whole run, from many small heaps instead of one large one.
  const auto spaces = [&](size_t at) { return spaced.compare(at, kSpace.size(), kSpace) == 0; };
  for (size_t begin = 0, end = 0; begin < spaced.size(); begin = end) {
    while (end < spaced.size() && spaces(end)) end += kSpace.size();
    end = std::min(spaced.find(kSpace, end), spaced.size());
    encode_word(std::string_view(spaced).substr(begin, end - begin), out);
  }
}

void SpmTokenizer::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < word.size(); at += symbols.back().text.size()) {
    const std::string_view character = word.substr(at, read_utf8(word.substr(at)).size);
    symbols.push_back({character, id_of(character)});
  }
  merge_pairs(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Join> {
    const TokenId id = id_of({left.text.data(), left.text.size() + right.text.size()});
    if (id < 0) return std::nullopt;
    return Join{-scores_[id], id};
  });
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0)
      out.push_back(symbol.id);
    else
      spell_out(symbol.text, out);
  }
}

void SpmTokenizer::spell_out(std::string_view text, std::vector<TokenId>& out) const {
  const auto lacks = [&](unsigned char byte) { return byte_ids_[byte] < 0; };
  if (std::any_of(text.begin(), text.end(), lacks)) {
    if (!is_control(unk_)) out.push_back(unk_);
    return;
  }
  for (unsigned char byte : text) out.push_back(byte_ids_[byte]);
}

}  // namespace

std::unique_ptr<Tokenizer> make_spm_tokenizer(const Metadata& meta) {
  return std::make_unique<SpmTokenizer>(meta);
}

}  // namespace chaski
