// Byte-level BPE (GPT-2, Llama 3, Qwen, DeepSeek). The model's patterns split the text
// (pretokenizer.h), each word starts as bytes, and neighbours are joined by rank. Sennrich et al.
// 2016; Radford et al. 2019. A rank is the position in the merge list or, for tiktoken files
// without one, the id of the token that the pair makes.
#include <algorithm>

#include "engine/text/tokenizer/byte_alphabet.h"
#include "engine/text/tokenizer/pair_merge.h"
#include "engine/text/tokenizer/pretokenizer.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/tokenizer/word_cache.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/cores.h"
#include "ggml-like-tensor/file/chunks.h"

namespace chaski {

namespace {

Pretokenizer pretokenizer_of(const Metadata& meta) {
  if (meta.has("tokenizer.pre_patterns"))
    return Pretokenizer::from_patterns(meta.strs("tokenizer.pre_patterns"), meta.origin);
  // A file without either key is older than these keys; then GPT-2's was the only pre-tokenizer.
  return Pretokenizer::named(meta.str("tokenizer.pre", "gpt-2"), meta.origin);
}

struct Merge {
  TokenId left, right, joined;
};

bool joins(const Merge& merge, TokenId left, TokenId right) {
  return merge.left == left && merge.right == right;
}

uint64_t hash_of_pair(TokenId left, TokenId right) {
  const TokenId pair[] = {left, right};
  return hash_of({reinterpret_cast<const char*>(pair), sizeof pair});
}

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(const Metadata& meta);

 private:
  void add(TokenId id);
  std::vector<Merge> looked_up(const Texts& merges, const std::string& origin) const;
  void read_merges(const Metadata& meta);
  void encode_run(std::string_view text, bool opens, WordCache& words) const override;
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;
  std::optional<PairJoin> join(const Symbol& left, const Symbol& right) const;
  TokenId id_of(std::string_view bytes) const { return pieces_.find(bytes_, bytes); }

  Pretokenizer pretokenizer_;
  TextIndex pieces_;           // by bytes; normal pieces only
  std::vector<Merge> merges_;  // best rank first
  HashIndex by_pair_;          // index into merges_
  std::array<TokenId, 256> byte_ids_;
  std::vector<TokenId> unspellable_;  // the tokens for a byte that the vocabulary does not have
  bool whole_words_first_ = false;
};

BpeTokenizer::BpeTokenizer(const Metadata& meta)
    : Tokenizer(meta),
      pretokenizer_(pretokenizer_of(meta)),
      pieces_(tokens_.size()),
      by_pair_(meta.strs("tokenizer.merges").size()) {
  space_prefix_ = meta.boolean("tokenizer.add_space_prefix", false);
  if (!meta.has("tokenizer.add_bos")) adds_bos_ = pretokenizer_.adds_bos() && bos_ >= 0;
  for (TokenId id = 0; id < size(); ++id) add(id);
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[byte] = id_of({&text, 1});
  }
  read_merges(meta);
  // tiktoken looks the whole word up before merging.
  whole_words_first_ =
      meta.boolean("tokenizer.ignore_merges", pretokenizer_.whole_words_first() || merges_.empty());
  // The unknown token. GPT-NeoX's is <|endoftext|>, a control token; then U+FFFD, if it can be
  // spelled.
  if (unk_ >= 0 && !is_control(unk_))
    unspellable_ = {unk_};
  else
    encode_word("\xEF\xBF\xBD", unspellable_);
}

// Normal tokens are stored in the byte alphabet; added tokens (control, user-defined) as plain
// text.
void BpeTokenizer::add(TokenId id) {
  const std::string_view raw = tokens_[id];
  if (type(id) == TokenType::control) {
    bytes_.push_back("");
    return recognise(id);
  }
  if (type(id) == TokenType::user_defined) {
    bytes_.push_back(raw);
    return recognise(id);
  }
  const std::optional<std::string> bytes = from_byte_alphabet(raw);
  bytes_.push_back(bytes ? *bytes : raw);
  if (type(id) == TokenType::normal) pieces_.put(bytes_, id);
}

// Looks up the pieces of all merges, on all cores: of a vocabulary with 150000 tokens this is a
// third of the time until the model can read a prompt. A missing piece is -1.
std::vector<Merge> BpeTokenizer::looked_up(const Texts& merges, const std::string& origin) const {
  constexpr size_t kAtOnce = 8192;  // about 1 ms
  std::vector<Merge> found(merges.size());
  for_each_job((merges.size() + kAtOnce - 1) / kAtOnce, usable_cores(), [&](size_t job) {
    std::string both;
    for (size_t rank = job * kAtOnce; rank < std::min(merges.size(), (job + 1) * kAtOnce); ++rank) {
      const std::string_view merge = merges[rank];
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos)
        fail(Exit::bad_file, "{}: tokenizer.merges[{}] is \"{}\", expected two pieces", origin,
             rank, escaped(merge));
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      both = left;
      both += right;
      found[rank] = {find(left).value_or(-1), find(right).value_or(-1), find(both).value_or(-1)};
    }
  });
  return found;
}

void BpeTokenizer::read_merges(const Metadata& meta) {
  const Texts& merges = meta.strs("tokenizer.merges");
  merges_.reserve(merges.size());
  size_t ignored = 0, rank = 0;
  for (const Merge& merge : looked_up(merges, meta.origin)) {
    const std::string_view text = merges[rank++];
    if (merge.left < 0 || merge.right < 0 || merge.joined < 0) {
      if (ignored++ == 0)
        remark_ = fmt::format("tokenizer.merges[{}] is \"{}\", and a piece of it is missing",
                              rank - 1, escaped(text));
      continue;
    }
    if (is_control(merge.joined)) continue;  // typed text must not become a control token
    merges_.push_back(merge);
    by_pair_.put(hash_of_pair(merge.left, merge.right), static_cast<int32_t>(merges_.size() - 1),
                 [&](int32_t other) { return joins(merges_[other], merge.left, merge.right); });
  }
  if (ignored > 0)
    remark_ = fmt::format("{}: {}: ignored {} of {} merges", meta.origin, remark_, ignored,
                          merges.size());
}

std::optional<PairJoin> BpeTokenizer::join(const Symbol& left, const Symbol& right) const {
  if (left.id < 0 || right.id < 0) return std::nullopt;
  if (merges_.empty()) {
    const TokenId id = id_of({left.text.data(), left.text.size() + right.text.size()});
    return id < 0 ? std::nullopt : std::optional(PairJoin{static_cast<double>(id), id});
  }
  const int32_t rank = by_pair_.find(hash_of_pair(left.id, right.id), [&](int32_t at) {
    return joins(merges_[at], left.id, right.id);
  });
  return rank < 0 ? std::nullopt
                  : std::optional(PairJoin{static_cast<double>(rank), merges_[rank].joined});
}

void BpeTokenizer::encode_run(std::string_view text, bool opens, WordCache& words) const {
  std::string spaced;
  if (opens && space_prefix_ && !text.starts_with(' ')) text = spaced = " " + std::string(text);
  std::vector<TokenId>& out = words.out();
  for (std::string_view word : pretokenizer_.split(text))
    words.append(word, [&] {
      const TokenId whole = whole_words_first_ ? id_of(word) : -1;
      if (whole >= 0)
        out.push_back(whole);
      else
        encode_word(word, out);
    });
}

void BpeTokenizer::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (size_t at = 0; at < word.size(); ++at)
    symbols.push_back({word.substr(at, 1), byte_ids_[static_cast<unsigned char>(word[at])]});
  merge_pairs(symbols, [&](const Symbol& left, const Symbol& right) { return join(left, right); });
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0)
      out.push_back(symbol.id);
    else
      out.insert(out.end(), unspellable_.begin(), unspellable_.end());
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const Metadata& meta) {
  return std::make_unique<BpeTokenizer>(meta);
}

}  // namespace chaski
