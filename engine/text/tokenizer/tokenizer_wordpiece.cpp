// WordPiece (BERT): words are separated by white space, and each punctuation mark is a word. A word
// is split from the left into the longest known pieces; if that fails, the whole word is unknown.
// Pieces that begin a word are stored with U+2581 in front, others unchanged. That is GGUF's
// spelling; Hugging Face marks the other pieces with "##". Wu et al. 2016; Devlin et al. 2019.
#include <array>
#include <unordered_map>

#include "engine/text/characters.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/tokenizer/word_cache.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr std::string_view kWordBegins = "\xE2\x96\x81";  // U+2581
constexpr size_t kLongestWord = 100;                      // characters; a longer word is unknown

// ASCII letters and digits, the most frequent characters; they are always inside a word.
constexpr std::array<bool, 128> kInWords = [] {
  std::array<bool, 128> in{};
  for (char c = '0'; c <= '9'; ++c) in[size_t(c)] = true;
  for (char c = 'a'; c <= 'z'; ++c) in[size_t(c)] = in[size_t(c - 32)] = true;
  return in;
}();

class WordPieceTokenizer : public Tokenizer {
 public:
  explicit WordPieceTokenizer(const Metadata& meta);

 private:
  void encode_run(std::string_view text, bool opens, WordCache& words) const override;
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;
  // Bytes and id of the longest piece that is a prefix of `rest`; 0 bytes: there is none.
  std::pair<size_t, TokenId> longest(std::string_view rest, bool first) const;

  std::unordered_map<std::string_view, TokenId> firsts_, others_;  // by text
};

WordPieceTokenizer::WordPieceTokenizer(const Metadata& meta) : Tokenizer(meta) {
  if (unk_ < 0)
    fail(Exit::bad_file, "{}: tokenizer.unk_id is missing, expected an unknown token for WordPiece",
         meta.origin);
  space_prefix_ = true;  // decode() begins without the space of the first word
  for (TokenId id = 0; id < size(); ++id) {
    const std::string_view raw = tokens_[id];
    if (is_control(id)) {
      bytes_.push_back("");
      recognise(id);
    } else if (type(id) == TokenType::unknown) {
      bytes_.push_back("\xEF\xBF\xBD");
    } else if (raw.starts_with(kWordBegins)) {
      bytes_.push_back(" " + std::string(raw.substr(kWordBegins.size())));
      if (type(id) == TokenType::normal) firsts_.try_emplace(raw.substr(kWordBegins.size()), id);
    } else {
      bytes_.push_back(raw);
      if (type(id) == TokenType::normal) others_.try_emplace(raw, id);
      if (type(id) == TokenType::user_defined) recognise(id);
    }
  }
}

void WordPieceTokenizer::encode_run(std::string_view text, bool, WordCache& words) const {
  const std::string valid = valid_utf8(text);
  std::vector<TokenId>& out = words.out();
  size_t begin = 0, at = 0;  // the begin of the current word, and the current position
  const auto end_word = [&](size_t end) {
    const std::string_view word = std::string_view(valid).substr(begin, end - begin);
    if (!word.empty()) words.append(word, [&] { encode_word(word, out); });
  };
  each_character(valid, [&](int32_t c, std::string_view bytes) {
    const bool plain = c < 0x80 && kInWords[size_t(c)];
    const bool space = !plain && is_white_space(c), alone = !plain && is_punctuation(c);
    if (space || alone) end_word(at), begin = at + (space ? bytes.size() : 0);
    at += bytes.size();
    if (alone) end_word(at), begin = at;
  });
  end_word(at);
}

std::pair<size_t, TokenId> WordPieceTokenizer::longest(std::string_view rest, bool first) const {
  const auto& pieces = first ? firsts_ : others_;
  for (size_t n = rest.size(); n > 0; --n) {
    const bool whole = n == rest.size() || (rest[n] & 0xC0) != 0x80;  // at the end of a character
    const auto at = whole ? pieces.find(rest.substr(0, n)) : pieces.end();
    if (at != pieces.end()) return {n, at->second};
  }
  return {0, -1};
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  const size_t before = out.size();
  size_t characters = 0;
  each_character(word, [&](int32_t, std::string_view) { ++characters; });
  for (size_t at = 0; at < word.size();) {
    const auto [n, id] = characters > kLongestWord ? std::pair(size_t{0}, TokenId{-1})
                                                   : longest(word.substr(at), at == 0);
    if (n == 0) {
      out.resize(before);
      return out.push_back(unk_);
    }
    out.push_back(id);
    at += n;
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(const Metadata& meta) {
  return std::make_unique<WordPieceTokenizer>(meta);
}

}  // namespace chaski
