// The vocabulary, control tokens and decoding: everything that is the same for all kinds of
// tokenizer.
#include "engine/text/tokenizer/tokenizer.h"

#include <algorithm>

#include "engine/text/tokenizer/pieces.h"
#include "engine/text/tokenizer/word_cache.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"
#include "models/import/tokenizer/tokenizer_kinds.h"

namespace chaski {

namespace {

// Tokens that end a turn, as various model families name them. Files often give only one id (phi-3:
// <|endoftext|>, although every answer ends with <|end|>). Without this list such a model would
// never stop.
constexpr std::string_view kEndings[] = {
    "</s>",          "<|endoftext|>",   "<|end_of_text|>", "<|im_end|>", "<|eot_id|>",
    "<|eom_id|>",    "<|eot|>",         "<|end|>",         "<|EOT|>",    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>", "<|end_of_turn|>", "<|return|>",      "<|call|>",   "<｜end▁of▁sentence｜>",
};
// Other control tokens. Files sometimes mark them as user-defined, which would let any user type
// them.
constexpr std::string_view kSteering[] = {
    "<s>",     "<bos>",           "<eos>",
    "<pad>",   "<start_of_turn>", "[INST]",
    "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
};

bool is_one_of(std::span<const std::string_view> list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// <|...|>, also with deepseek's full-width bars: always a control token, whatever the file says.
bool in_bars(std::string_view raw) {
  return (raw.starts_with("<|") && raw.ends_with("|>") && raw.size() > 4) ||
         (raw.starts_with("<｜") && raw.ends_with("｜>"));
}

// A *normal* "</s>" is unchanged: byte-level vocabularies have such pieces as words of HTML.
TokenType type_of(TokenType stored, std::string_view raw) {
  const bool listed = is_one_of(kEndings, raw) || is_one_of(kSteering, raw);
  return in_bars(raw) || (stored == TokenType::user_defined && listed) ? TokenType::control
                                                                       : stored;
}

std::unique_ptr<Tokenizer> make_kind(std::string_view kind, const Metadata& meta) {
  if (kind == "bpe") return make_bpe_tokenizer(meta);
  if (kind == "wordpiece") return make_wordpiece_tokenizer(meta);
  if (kind == "rwkv") return make_rwkv_tokenizer(meta);
  if (kind == "plamo2") return make_plamo2_tokenizer(meta);
  return make_spm_tokenizer(meta);
}

// The metadata key of a tokenizer kind that the importer does not know, with GGUF's name.
const std::string kForeignKind = "gguf.tokenizer.ggml.model";

}  // namespace

bool Tokenizer::described(const Metadata& meta) {
  if (!meta.has(kForeignKind)) return meta.has("tokenizer.kind");
  const std::string& kind = meta.str(kForeignKind);
  return kind != "none" && kind != "no_vocab";
}

std::unique_ptr<Tokenizer> Tokenizer::make(const Metadata& meta) {
  if (meta.has(kForeignKind)) {
    const std::string& kind = meta.str(kForeignKind);
    fail(Exit::bad_file, "{}: tokenizer.ggml.model is \"{}\", expected {}", meta.origin,
         escaped(kind), expected_names(kind, tokenizer_kinds(&TokenizerKind::gguf)));
  }
  const std::string& kind = meta.str("tokenizer.kind");
  const std::vector<std::string> known = tokenizer_kinds(&TokenizerKind::ours);
  if (std::find(known.begin(), known.end(), kind) == known.end())
    fail(Exit::bad_file, "{}: tokenizer.kind is \"{}\", expected {}", meta.origin, escaped(kind),
         expected_names(kind, known));
  auto made = make_kind(kind, meta);
  made->sort_spellings();
  return made;
}

Tokenizer::Tokenizer(const Metadata& meta)
    : tokens_(meta.strs("tokenizer.tokens")),
      normalizer_(Normalizer::of(meta)),
      by_raw_(tokens_.size()) {
  if (tokens_.empty() || tokens_.size() > INT32_MAX)
    fail(Exit::bad_file, "{}: tokenizer.tokens has {} tokens, expected 1 to 2^31", meta.origin,
         tokens_.size());
  for (TokenId id = 0; id < size(); ++id) by_raw_.put(tokens_, id);
  // Files may omit the names that are standard for the kind.
  const bool spm = meta.str("tokenizer.kind") == "spm",
             bert = meta.str("tokenizer.kind") == "wordpiece";
  const auto named = [&](std::string_view in_spm, std::string_view in_bert) {
    return spm || bert ? find(spm ? in_spm : in_bert).value_or(-1) : -1;
  };
  bos_ = id_at(meta, "tokenizer.bos_id", named("<s>", "[CLS]"));
  eos_ = id_at(meta, "tokenizer.eos_id", named("</s>", "[SEP]"));
  unk_ = id_at(meta, "tokenizer.unk_id", named("<unk>", "[UNK]"));
  read_types(meta);
  read_ends(meta);
  adds_bos_ = meta.boolean("tokenizer.add_bos", spm) && bos_ >= 0;
  adds_eos_ = meta.boolean("tokenizer.add_eos", false) && eos_ >= 0;
}

TokenId Tokenizer::id_at(const Metadata& meta, const std::string& key, TokenId otherwise) const {
  const int64_t id = meta.integer(key, otherwise);
  if (id < -1 || id >= size())
    fail(Exit::bad_file, "{}: {} is {}, expected an id below {}, the number of tokens", meta.origin,
         key, id, size());
  return static_cast<TokenId>(id);
}

void Tokenizer::read_types(const Metadata& meta) {
  const Ints& types = meta.ints("tokenizer.types");
  if (!types.empty() && types.size() != tokens_.size())
    fail(Exit::bad_file, "{}: tokenizer.types has {} entries, expected {}", meta.origin,
         types.size(), size());
  types_.assign(tokens_.size(), TokenType::normal);
  for (size_t id = 0; id < types.size(); ++id) {
    if (types[id] < 1 || types[id] > 6)
      fail(Exit::bad_file, "{}: tokenizer.types[{}] is {}, expected 1 to 6", meta.origin, id,
           types[id]);
    types_[id] = static_cast<TokenType>(types[id]);
  }
  if (unk_ >= 0 && types_[unk_] == TokenType::normal) types_[unk_] = TokenType::unknown;
  for (TokenId id = 0; id < size(); ++id) types_[id] = type_of(types_[id], tokens_[id]);
}

// A token that ends an answer or begins a text is a control token.
void Tokenizer::read_ends(const Metadata& meta) {
  ends_ = {eos_, id_at(meta, "tokenizer.eot_id", -1)};
  for (int64_t id : meta.ints("tokenizer.eos_ids")) {
    if (id < 0 || id >= size())
      fail(Exit::bad_file,
           "{}: tokenizer.eos_ids has the id {}, expected ids below {}, the number of tokens",
           meta.origin, id, size());
    ends_.push_back(static_cast<TokenId>(id));
  }
  // In gpt-oss's format <|end|> ends a message, after which the answer continues in another
  // channel.
  const bool channels = find("<|channel|>") && find("<|return|>");
  for (std::string_view text : kEndings)
    if (const auto id = find(text); id && is_control(*id)) ends_.push_back(*id);
  if (channels) std::erase(ends_, by_raw_.find(tokens_, "<|end|>"));
  std::erase(ends_, -1);
  // Converters declare RWKV's piece for an empty line to be the end of a turn, so that a chat stops
  // there. In any other text it is the end of a paragraph, and a chat stops at the next "User:".
  if (meta.str("tokenizer.kind") == "rwkv")
    std::erase_if(ends_, [&](TokenId id) { return types_[id] == TokenType::normal; });
  for (TokenId id : ends_) types_[id] = TokenType::control;
  if (bos_ >= 0) types_[bos_] = TokenType::control;
}

std::optional<TokenId> Tokenizer::find(std::string_view raw) const {
  const TokenId id = by_raw_.find(tokens_, raw);
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Tokenizer::is_end(TokenId id) const {
  return std::find(ends_.begin(), ends_.end(), id) != ends_.end();
}

std::string_view Tokenizer::spelling(TokenId id) const {
  return is_control(id) ? raw(id) : piece(id);
}

void Tokenizer::recognise(TokenId id) {
  if (!spelling(id).empty()) spellings_.push_back(id);
}

// Of several tokens with the same text, only the first control token and the first other one are
// recognised.
void Tokenizer::sort_spellings() {
  const auto key = [&](TokenId id) { return std::pair(spelling(id), is_control(id)); };
  std::stable_sort(spellings_.begin(), spellings_.end(),
                   [&](TokenId a, TokenId b) { return key(a) < key(b); });
  spellings_.erase(std::unique(spellings_.begin(), spellings_.end(),
                               [&](TokenId a, TokenId b) { return key(a) == key(b); }),
                   spellings_.end());
  for (TokenId id : spellings_) {
    const std::string_view text = spelling(id);
    for (int second = 0; second < 256; ++second)
      if (text.size() == 1 || static_cast<unsigned char>(text[1]) == second)
        begins_[static_cast<unsigned char>(text[0]) * 256u + static_cast<unsigned>(second)] = true;
  }
}

// The longest token that is a prefix of `text`, or -1. Of tokens with one spelling, the first.
TokenId Tokenizer::spelling_at(std::string_view text, bool trusted) const {
  TokenId longest = -1;
  const auto second = static_cast<unsigned char>(text.size() > 1 ? text[1] : '\0');
  if (!begins_[static_cast<unsigned char>(text[0]) * 256u + second]) return longest;
  each_beginning(
      spellings_, [&](TokenId id) { return spelling(id); }, text,
      [&](std::span<const TokenId> same) {
        bool found = false;
        for (const TokenId id : same)
          if (trusted || !is_control(id))
            longest = found ? std::min(longest, id) : id, found = true;
      });
  return longest;
}

// The text between two recognised tokens is one run, also across the borders of parts: a template
// and the message in it are tokenized as one text, as in training.
std::vector<TokenId> Tokenizer::encode_parts(std::span<const Part> parts) const {
  std::vector<TokenId> out;
  WordCache words(out);
  std::string run;
  bool opens = true;
  const auto end_run = [&] {
    if (run.empty()) return;
    if (normalizer_.empty())
      encode_run(run, opens, words);
    else
      encode_run(normalizer_.apply(run), opens, words);
    run.clear();
    opens = false;
  };
  for (const Part& part : parts) {
    if (part.apart) end_run();
    for (size_t at = 0, plain = 0; at < part.text.size();) {
      const TokenId token = spelling_at(part.text.substr(at), part.trusted);
      ++at;
      if (token < 0 && at < part.text.size()) continue;
      run += part.text.substr(plain, token < 0 ? at - plain : at - 1 - plain);
      if (token < 0) break;
      end_run();
      out.push_back(token);
      opens = is_control(token);
      plain = at += spelling(token).size() - 1;
    }
  }
  end_run();
  return out;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  return encode_parts({{Part{text}}});
}

std::vector<TokenId> Tokenizer::encode_with_control(std::string_view text) const {
  return encode_parts({{Part{text, true}}});
}

std::vector<TokenId> Tokenizer::encode_prompt(std::string_view text, Spelled as) const {
  std::vector<TokenId> out = as == Spelled::control ? encode_with_control(text) : encode(text);
  const bool has_bos = as == Spelled::control && !out.empty() && out[0] == bos_;
  if (adds_bos_ && !has_bos) out.insert(out.begin(), bos_);
  return out;
}

std::vector<TokenId> Tokenizer::encode_whole(std::string_view text, Spelled as) const {
  std::vector<TokenId> out = encode_prompt(text, as);
  if (adds_eos_) out.push_back(eos_);
  return out;
}

std::vector<TokenId> Tokenizer::control_tokens_in(std::string_view text) const {
  std::vector<TokenId> found;
  while (!text.empty()) {
    const TokenId token = spelling_at(text, true);
    if (token >= 0 && is_control(token) && std::ranges::count(found, token) == 0)
      found.push_back(token);
    text.remove_prefix(token < 0 ? 1 : spelling(token).size());
  }
  return found;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens) const {
  std::string out;
  bool at_start = true;
  for (TokenId id : tokens) {
    if (is_control(id)) continue;
    std::string_view bytes = piece(id);
    if (at_start && space_prefix_ && type(id) == TokenType::normal && bytes.starts_with(' '))
      bytes.remove_prefix(1);
    out += bytes;
    at_start = false;
  }
  return out;
}

}  // namespace chaski
