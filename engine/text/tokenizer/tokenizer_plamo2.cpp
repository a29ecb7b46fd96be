// PLaMo 2's tokenizer. It divides a text into the pieces with the highest sum of scores, which are
// rounded to 1e-4. If sums are equal, the longest first piece wins. A character without a piece
// becomes its bytes and costs 1000. There is no normalization, and spaces are spaces.
// Source: llama.cpp's reader of its GGUF files, which follows the authors' tokenization_plamo.py.
#include <algorithm>
#include <cmath>

#include "engine/text/tokenizer/pieces.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/tokenizer/word_cache.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

class Plamo2Tokenizer : public Tokenizer {
 public:
  explicit Plamo2Tokenizer(const Metadata& meta);

 private:
  static constexpr double kScale = 1e4;
  static constexpr int64_t kUnknown = -10'000'000, kWorst = -20'000'000;

  void encode_run(std::string_view text, bool opens, WordCache& words) const override;

  std::vector<TokenId> sorted_;  // normal pieces, by text; of equal ones the last id comes first
  std::vector<int64_t> scores_;
  std::array<TokenId, 256> byte_ids_;
};

// The bytes of the character at the beginning of `text`; a byte that begins none is one.
size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t size = byte(0) < 0xC0 ? 1 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < size; ++i)
    if (i >= text.size() || (byte(i) & 0xC0) != 0x80) return 1;
  return size;
}

Plamo2Tokenizer::Plamo2Tokenizer(const Metadata& meta) : Tokenizer(meta) {
  const Floats& scores = meta.floats("tokenizer.scores");
  if (scores.size() != tokens_.size())
    fail(Exit::bad_file, "{}: tokenizer.scores has {} entries, expected {}", meta.origin,
         scores.size(), size());
  byte_ids_.fill(-1);
  for (TokenId id = 0; id < size(); ++id) {
    const double score = scores[size_t(id)];
    if (!std::isfinite(score))
      fail(Exit::bad_file, "{}: tokenizer.scores[{}] is {}, expected a number", meta.origin, id,
           score);
    // Sums of these fit into 64 bits for any text.
    scores_.push_back(std::llround(std::clamp(score, -1e6, 1e6) * kScale));
    const std::string raw(tokens_[size_t(id)]);
    if (is_control(id)) {
      bytes_.push_back("");
      recognise(id);
    } else if (type(id) == TokenType::byte) {
      const int byte = byte_of(raw);
      if (byte < 0)
        fail(Exit::bad_file, "{}: byte token {} is \"{}\", expected <0xNN>", meta.origin, id,
             escaped(raw));
      byte_ids_[size_t(byte)] = id;
      bytes_.push_back(std::string(1, static_cast<char>(byte)));
    } else {
      bytes_.push_back(raw);
      if (type(id) == TokenType::user_defined) recognise(id);
      if (type(id) == TokenType::normal && !raw.empty() && scores_.back() > kWorst)
        sorted_.push_back(id);
    }
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte)
    if (byte_ids_[byte] < 0)
      fail(Exit::bad_file,
           "{}: tokenizer.tokens has no byte token for the byte {:#04x}, expected all 256",
           meta.origin, byte);
  std::sort(sorted_.begin(), sorted_.end(), [&](TokenId a, TokenId b) {
    return std::pair(piece(a), -a) < std::pair(piece(b), -b);
  });
}

void Plamo2Tokenizer::encode_run(std::string_view text, bool, WordCache& words) const {
  // Where the best way from here to the end begins: a piece, or -1 for the bytes of a character.
  struct Step {
    int64_t sum = 0;
    TokenId id = -1;
    uint32_t size = 0;
  };
  std::vector<size_t> characters;
  for (size_t at = 0; at < text.size(); at += character_size(text.substr(at)))
    characters.push_back(at);
  std::vector<Step> steps(text.size() + 1);
  for (auto c = characters.rbegin(); c != characters.rend(); ++c) {
    const std::string_view rest = text.substr(*c);
    const auto size = uint32_t(character_size(rest));
    Step best{kUnknown + steps[*c + size].sum, -1, size};
    each_beginning(
        sorted_, [&](TokenId id) { return piece(id); }, rest,
        [&](std::span<const TokenId> same) {
          const TokenId id = same.front();
          const auto n = uint32_t(piece(id).size());
          const Step& next = steps[*c + n];
          if (next.size == 0 && *c + n < text.size()) return;  // inside a character
          const int64_t sum = scores_[size_t(id)] + next.sum;
          if (sum >= best.sum) best = {sum, id, n};  // longer pieces come later
        });
    steps[*c] = best;
  }
  for (size_t at = 0; at < text.size(); at += steps[at].size) {
    if (steps[at].id >= 0) {
      words.out().push_back(steps[at].id);
      continue;
    }
    for (size_t i = 0; i < steps[at].size; ++i)
      words.out().push_back(byte_ids_[static_cast<unsigned char>(text[at + i])]);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_plamo2_tokenizer(const Metadata& meta) {
  return std::make_unique<Plamo2Tokenizer>(meta);
}

}  // namespace chaski
