#include "models/import/hf/hf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/import/folder.h"
#include "models/import/tokenizer/byte_literal.h"
#include "models/import/tokenizer/tokenizer_defaults.h"
#include "models/import/tokenizer/tokenizer_parts.h"
#include "models/import/tokenizer/tokenizer_steps.h"

namespace chaski {
namespace {

constexpr const char* kRwkvFile = "rwkv_vocab_v20230424.txt";
constexpr const char* kPlamo2File = "tokenizer.jsonl";

std::optional<TokenizerParts> read_parts(const std::string& folder) {
  const std::string json = folder + "/tokenizer.json", model = folder + "/tokenizer.model";
  const std::string vocab = folder + "/vocab.json", merges = folder + "/merges.txt",
                    lines = folder + "/vocab.txt", rwkv = folder + "/" + kRwkvFile;
  if (exists(json)) return read_tokenizer_json(json);
  if (exists(model)) return read_sentencepiece(model);
  if (exists(vocab) && exists(merges)) return read_vocab_and_merges(vocab, merges);
  if (exists(lines)) return read_vocab_txt(lines);
  if (exists(rwkv)) return read_rwkv_vocab(rwkv);
  if (const std::string pieces = folder + "/" + kPlamo2File; exists(pieces))
    return read_plamo2_vocab(pieces);
  return std::nullopt;
}

// A special piece is a string or, in files of older versions, an object around it.
void read_piece(const Json& value, std::string& piece) {
  if (value.present()) piece = value.is_object() ? value["content"].str() : value.str();
}

void read_flag(const Json& value, std::optional<bool>& flag) {
  if (value.present()) flag = value.boolean(false);
}

// A model with several templates names them; "default" is the one for plain chat.
void read_chat_template(const Json& value, Metadata& meta) {
  if (!value.present()) return;
  if (!value.is_array()) return meta.set_str("tokenizer.chat_template", value.str());
  value.each([&](const Json& one) {
    if (one["name"].str() == "default")
      meta.set_str("tokenizer.chat_template", one["template"].str());
  });
}

void read_tokenizer_config(const std::string& path, TokenizerParts& parts, Metadata& meta) {
  if (!exists(path)) return;
  const Json config = read_json(path);
  read_piece(config["bos_token"], parts.bos);
  read_piece(config["eos_token"], parts.eos);
  read_piece(config["unk_token"], parts.unk);
  read_piece(config["pad_token"], parts.pad);
  read_flag(config["add_bos_token"], parts.add_bos);
  read_flag(config["add_eos_token"], parts.add_eos);
  read_chat_template(config["chat_template"], meta);
  if (const Json small = config["do_lower_case"];
      small.present() && parts.file.ends_with("vocab.txt"))
    parts.normalizer =
        bert_normalizer(true, config["tokenize_chinese_chars"].boolean(true),
                        config["strip_accents"].boolean(small.boolean(true)), small.boolean(true));
  if (!parts.file.ends_with("tokenizer.json")) {  // tokenizer.json has added tokens itself
    put_added_tokens(config["added_tokens_decoder"], parts);
    parts.fill_holes(0);
  }
}

// Adapts the vocabulary to the rows of the embedding table. Padded rows get unused pieces. Added
// pieces without a row are dropped, because no model can have learnt them. Any other vocabulary
// belongs to another model.
void fit(TokenizerParts& parts, int64_t vocab_size) {
  const auto size = static_cast<size_t>(vocab_size);
  if (size > parts.most_ids())
    fail(Exit::bad_file, "{}: vocabulary has {} pieces, expected more for a vocab_size of {}",
         parts.file, parts.pieces, size);
  parts.fill_holes(size);
  for (size_t i = size; i < parts.tokens.size(); ++i)
    if (parts.types[i] == kNormal)
      fail(Exit::bad_file, "{}: vocabulary has {} pieces, expected at most vocab_size {}",
           parts.file, parts.tokens.size(), size);
  parts.tokens.resize(size), parts.types.resize(size);
  if (parts.has_scores()) parts.scores.resize(size);
}

// GGUF's spelling has a mark on pieces that begin a word and none on the others.
void respell_wordpieces(TokenizerParts& parts) {
  for (size_t i = 0; i < parts.tokens.size(); ++i) {
    if (parts.types[i] != kNormal) continue;
    std::string& piece = parts.tokens[i];
    piece = piece.starts_with("##") ? piece.substr(2) : "\u2581" + piece;
  }
}

void set_id(const TokenizerParts& parts, const std::string& piece, const char* key,
            Metadata& meta) {
  auto found = std::find(parts.tokens.begin(), parts.tokens.end(), piece);
  if (!piece.empty() && found != parts.tokens.end())
    meta.set_int(key, found - parts.tokens.begin());
}

void set_flag(const std::optional<bool>& flag, const char* key, Metadata& meta) {
  if (flag) meta.set_bool(key, *flag);
}

// RWKV's file omits id 0, which begins and ends texts. Its name is in tokenizer_config.json, if
// there is one, else it is GGUF's.
void name_first_token(TokenizerParts& parts) {
  parts.fill_holes(1);
  if (parts.types[0] == kUnused) parts.tokens[0] = "<s>";
  parts.types[0] = kControl;
  for (std::string* end : {&parts.bos, &parts.eos}) {
    if (std::find(parts.tokens.begin(), parts.tokens.end(), *end) != parts.tokens.end()) continue;
    const std::string stored = literal_of_bytes(*end);
    const bool known =
        std::find(parts.tokens.begin(), parts.tokens.end(), stored) != parts.tokens.end();
    *end = known ? stored : parts.tokens[0];
  }
}

void write(TokenizerParts& parts, Metadata& meta) {
  meta.set_str("tokenizer.kind", parts.kind);
  if (parts.kind == "rwkv") name_first_token(parts);
  set_id(parts, parts.bos, "tokenizer.bos_id", meta);
  set_id(parts, parts.eos, "tokenizer.eos_id", meta);
  set_id(parts, parts.unk, "tokenizer.unk_id", meta);
  set_id(parts, parts.pad, "tokenizer.pad_id", meta);
  set_flag(parts.add_bos, "tokenizer.add_bos", meta);
  set_flag(parts.add_eos, "tokenizer.add_eos", meta);
  set_flag(parts.add_space_prefix, "tokenizer.add_space_prefix", meta);
  set_flag(parts.ignore_merges, "tokenizer.ignore_merges", meta);
  if (parts.every_space) meta.set_bool("tokenizer.every_space", true);
  if (parts.prefix_once) meta.set_bool("tokenizer.prefix_once", true);
  if (!parts.normalizer.empty()) meta.set_strs("tokenizer.normalizer", std::move(parts.normalizer));
  if (!parts.charsmap.empty())
    meta.set("tokenizer.charsmap", {ValueType::array, ValueType::u8,
                                    Ints::of<uint8_t>(std::as_bytes(std::span(parts.charsmap)))});
  if (parts.kind == "wordpiece") respell_wordpieces(parts);
  meta.set_strs("tokenizer.tokens", std::move(parts.tokens));
  meta.set_ints("tokenizer.types", Ints::of<int8_t>(std::as_bytes(std::span(parts.types))));
  if (parts.has_scores()) return meta.set_floats("tokenizer.scores", std::move(parts.scores));
  if (parts.kind == "wordpiece" || parts.kind == "rwkv") return;
  meta.set_strs("tokenizer.merges", std::move(parts.merges));
  meta.set_strs("tokenizer.pre_patterns", std::move(parts.pre_patterns));
}

// All ids that one of the files declares as an end of text, and the ids of pieces spelled like one.
void set_ends(const HfConfig& config, Metadata& meta) {
  if (!meta.has("tokenizer.bos_id") && config.bos_id >= 0)
    meta.set_int("tokenizer.bos_id", config.bos_id);
  if (!meta.has("tokenizer.eos_id") && !config.eos_ids.empty())
    meta.set_int("tokenizer.eos_id", config.eos_ids[0]);
  std::vector<int64_t> ids = guessed_eos_ids(meta);
  ids.insert(ids.end(), config.eos_ids.begin(), config.eos_ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  meta.set_ints("tokenizer.eos_ids", std::move(ids));
}

}  // namespace

void read_hf_tokenizer(const std::string& folder, const HfConfig& config, Metadata& meta) {
  auto parts = read_parts(folder);
  if (!parts) return;
  read_tokenizer_config(folder + "/tokenizer_config.json", *parts, meta);
  if (const std::string jinja = folder + "/chat_template.jinja"; exists(jinja)) {
    const auto text = Mapping::open(jinja);
    meta.set_str("tokenizer.chat_template",
                 {reinterpret_cast<const char*>(text->bytes().data()), text->bytes().size()});
  }
  if (config.vocab_size > 0) fit(*parts, config.vocab_size);
  write(*parts, meta);
  set_ends(config, meta);
  complete_tokenizer(meta);
}

void read_tokenizer_file(const std::string& path, Metadata& meta) {
  TokenizerParts parts = beginning_of(path, 1) == "{"  ? read_tokenizer_json(path)
                         : path.ends_with(kRwkvFile)   ? read_rwkv_vocab(path)
                         : path.ends_with(kPlamo2File) ? read_plamo2_vocab(path)
                         : path.ends_with(".txt")      ? read_vocab_txt(path)
                                                       : read_sentencepiece(path);
  write(parts, meta);
  complete_tokenizer(meta);
}

}  // namespace chaski
