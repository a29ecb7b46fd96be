// SentencePiece: spaces become U+2581, and a character without a piece becomes its bytes <0xNN>, or
// the unknown token. Kind "spm" (Llama 2, Mistral, Gemma, Phi-3, llama2.c) joins characters by the
// scores of the pieces they make. Kind "unigram" (T5) uses the pieces with the highest sum of
// scores. Kudo and Richardson, "SentencePiece" (2018); Kudo, "Subword Regularization" (2018).
#include <algorithm>
#include <charconv>
#include <limits>

#include "engine/text/tokenizer/pair_merge.h"
#include "engine/text/tokenizer/pieces.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/tokenizer/word_cache.h"
#include "engine/text/utf8.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, a space inside a piece

std::string with_spaces(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kSpace);
    out += space ? ' ' : piece[0];
    piece.remove_prefix(space ? kSpace.size() : 1);
  }
  return out;
}

class SpmTokenizer : public Tokenizer {
 public:
  explicit SpmTokenizer(const Metadata& meta);

 private:
  void find_byte_types();
  void add(TokenId id, const Metadata& meta);
  void encode_run(std::string_view text, bool opens, WordCache& words) const override;
  size_t word_end(std::string_view spaced, size_t begin) const;
  void join_pieces(std::string_view word, std::vector<TokenId>& out) const;
  void best_path(std::string_view word, std::vector<TokenId>& out) const;
  void spell_out(std::string_view text, std::vector<TokenId>& out) const;
  TokenId id_of(std::string_view text) const { return pieces_.find(tokens_, text); }

  Floats scores_;
  TextIndex pieces_;  // the pieces that joins can make: normal pieces only
  std::array<TokenId, 256> byte_ids_;
  // True if some piece has a space after a character that ends with this byte. After all other
  // bytes a space begins a new word, because no piece crosses it.
  std::array<bool, 256> joins_space_ = {};
  bool unigram_, every_space_ = false, prefix_once_ = false;
  size_t longest_ = 0;        // bytes of the longest piece
  double unknown_score_ = 0;  // score of a character without a piece
};

// Longer pieces are not used, because the search time grows with the square of the length.
constexpr size_t kLongestPiece = 256;
// SentencePiece's penalty for an unknown character, subtracted from the worst piece's score.
constexpr double kUnknownPenalty = 10;

SpmTokenizer::SpmTokenizer(const Metadata& meta)
    : Tokenizer(meta),
      scores_(meta.floats("tokenizer.scores")),
      pieces_(tokens_.size()),
      unigram_(meta.str("tokenizer.kind") == "unigram") {
  if (scores_.size() != tokens_.size())
    fail(Exit::bad_file, "{}: tokenizer.scores has {} entries, expected {}", meta.origin,
         scores_.size(), size());
  space_prefix_ = meta.boolean("tokenizer.add_space_prefix", true);
  every_space_ = meta.boolean("tokenizer.every_space", false);
  prefix_once_ = meta.boolean("tokenizer.prefix_once", false);
  byte_ids_.fill(-1);
  find_byte_types();
  for (TokenId id = 0; id < size(); ++id) add(id, meta);
  unknown_score_ -= kUnknownPenalty;
  longest_ = std::min(longest_, kLongestPiece);
  const bool all_bytes = std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
  if (!all_bytes && unk_ < 0)
    fail(Exit::bad_file,
         "{}: tokenizer.tokens has neither 256 byte tokens nor an unknown token, expected one of "
         "these",
         meta.origin);
}

// For a file without types: recognises byte tokens by their spelling.
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
  longest_ = std::max(longest_, raw.size());
  unknown_score_ = std::min(unknown_score_, scores_[size_t(id)]);
  for (size_t at = raw.find(kSpace, 1); at != raw.npos; at = raw.find(kSpace, at + 1))
    if (!raw.substr(0, at).ends_with(kSpace))
      joins_space_[static_cast<unsigned char>(raw[at - 1])] = true;
}

// Splitting at words gives the same tokens as the whole run, with many small heaps instead of one
// large one.
size_t SpmTokenizer::word_end(std::string_view spaced, size_t begin) const {
  size_t at = begin + 1;
  while (!every_space_ && spaced.substr(at - 1).starts_with(kSpace)) at += kSpace.size();
  while ((at = spaced.find(kSpace, at)) < spaced.size()) {
    const bool behind_space = spaced.substr(0, at).ends_with(kSpace);
    if (every_space_ ||
        (!behind_space && !joins_space_[static_cast<unsigned char>(spaced[at - 1])]))
      return at;
    at += kSpace.size();
  }
  return spaced.size();
}

void SpmTokenizer::encode_run(std::string_view text, bool opens, WordCache& words) const {
  std::string spaced;
  spaced.reserve(text.size() + text.size() / 2);
  if (opens && space_prefix_ && !(prefix_once_ && (text.empty() || text[0] == ' ')))
    spaced += kSpace;
  for (char c : text) c == ' ' ? spaced += kSpace : spaced += c;
  std::vector<TokenId>& out = words.out();
  for (size_t begin = 0, end; begin < spaced.size(); begin = end) {
    end = word_end(spaced, begin);
    const std::string_view word = std::string_view(spaced).substr(begin, end - begin);
    words.append(word, [&] { unigram_ ? best_path(word, out) : join_pieces(word, out); });
  }
}

void SpmTokenizer::join_pieces(std::string_view word, std::vector<TokenId>& out) const {
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < word.size(); at += symbols.back().text.size()) {
    const std::string_view character = word.substr(at, read_utf8(word.substr(at)).size);
    symbols.push_back({character, id_of(character)});
  }
  merge_pairs(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<PairJoin> {
    const TokenId id = id_of({left.text.data(), left.text.size() + right.text.size()});
    if (id < 0) return std::nullopt;
    return PairJoin{-scores_[id], id};
  });
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0)
      out.push_back(symbol.id);
    else
      spell_out(symbol.text, out);
  }
}

// The path with the highest sum of scores (Viterbi 1967); of equal paths the first one found.
// Consecutive unknown characters become one token.
void SpmTokenizer::best_path(std::string_view word, std::vector<TokenId>& out) const {
  struct Place {
    double score = -std::numeric_limits<double>::infinity();
    size_t from = 0;
    TokenId id = -1;
  };
  std::vector<Place> places(word.size() + 1);
  places[0].score = 0;
  const auto consider = [&](size_t begin, size_t end, TokenId id, double score) {
    score += places[begin].score;
    if (score > places[end].score) places[end] = {score, begin, id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t next = begin + size_t(read_utf8(word.substr(begin)).size);
    for (size_t end = next; end <= std::min(word.size(), begin + longest_);) {
      const TokenId id = id_of(word.substr(begin, end - begin));
      if (id >= 0) consider(begin, end, id, scores_[size_t(id)]);
      if (id < 0 && end == next) consider(begin, end, -1, unknown_score_);
      if (end == word.size()) break;
      end += size_t(read_utf8(word.substr(end)).size);
    }
    if (next > begin + longest_) consider(begin, next, -1, unknown_score_);
    begin = next;
  }
  std::vector<std::pair<size_t, size_t>> path;  // from the end to the beginning
  for (size_t end = word.size(); end > 0; end = places[end].from) {
    const bool unknown = places[end].id < 0;
    if (unknown && !path.empty() && places[path.back().second].id < 0)
      path.back().first = places[end].from;
    else
      path.emplace_back(places[end].from, end);
  }
  for (size_t i = path.size(); i-- > 0;) {
    const auto [begin, end] = path[i];
    if (places[end].id >= 0)
      out.push_back(places[end].id);
    else
      spell_out(word.substr(begin, end - begin), out);
  }
}

void SpmTokenizer::spell_out(std::string_view text, std::vector<TokenId>& out) const {
  const auto missing = [&](unsigned char byte) { return byte_ids_[byte] < 0; };
  if (std::any_of(text.begin(), text.end(), missing)) {
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
