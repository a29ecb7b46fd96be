#include "engine/text/tokenizer/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/text/ordered_json.h"
#include "engine/text/tokenizer/byte_alphabet.h"
#include "engine/text/tokenizer/pretokenizer.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// Hugging Face's names of the normal forms.
std::string normal_form(std::string_view step) {
  if (step != "nfc" && step != "nfd" && step != "nfkc" && step != "nfkd") return "";
  std::string name(step);
  for (char& c : name) c = char(c - 'a' + 'A');
  return name;
}

bool is_added(TokenType type) {
  return type == TokenType::control || type == TokenType::user_defined;
}

// True for a byte that can occur in text. Excluded are control characters other than tab and line
// ends, and bytes that begin no character or one of an unassigned plane. Vocabularies trained
// without these bytes may not have tokens for them.
bool is_in_texts(int byte) {
  const bool control = byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r',
             unassigned = byte == 0xC0 || byte == 0xC1 || byte == 0xF1 || byte == 0xF2;
  return !control && byte != 0x7F && !unassigned && byte <= 0xF4;
}

// The reason why the tokenizer cannot be written exactly; empty if it can.
std::string why_not_exact(const Metadata& meta, const Tokenizer& tokenizer) {
  const std::string& kind = meta.str("tokenizer.kind");
  if (kind != "bpe")
    return fmt::format("its kind is {}, and only byte-level BPE can be written exactly", kind);
  if (meta.strs("tokenizer.merges").empty()) return "its BPE has no list of merges";
  if (meta.boolean("tokenizer.add_space_prefix", false))
    return "it adds a space in front of a text";
  for (const std::string_view step : meta.strs("tokenizer.normalizer"))
    if (normal_form(step).empty())
      return fmt::format("its normalizer has the unsupported step {}", step);
  std::unordered_set<std::string_view> seen;
  for (TokenId id = 0; id < tokenizer.size(); ++id)
    if (!seen.insert(tokenizer.raw(id)).second)
      return fmt::format("two of its tokens have the text {}", escaped(tokenizer.raw(id)));
  for (int byte = 0; byte < 256; ++byte) {
    const char text = char(byte);
    const auto id = tokenizer.find(to_byte_alphabet({&text, 1}));
    if (is_in_texts(byte) && (!id || tokenizer.type(*id) != TokenType::normal))
      return fmt::format("it has no token for the byte {}", byte);
  }
  return "";
}

// Omits the merges that Tokenizer ignores: those of missing pieces or of a control token, and
// repeated ones.
OrderedJson merges_of(const Metadata& meta, const Tokenizer& tokenizer) {
  OrderedJson list = OrderedJson::array();
  std::unordered_set<std::string_view> seen;
  for (const std::string_view merge : meta.strs("tokenizer.merges")) {
    const size_t space = merge.find(' ', 1);
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const auto joined = tokenizer.find(std::string(left).append(right));
    if (joined && !tokenizer.is_control(*joined) && tokenizer.find(left) && tokenizer.find(right) &&
        seen.insert(merge).second)
      list.push_back(merge);
  }
  return list;
}

OrderedJson vocabulary_of(const Tokenizer& tokenizer) {
  OrderedJson::object_t vocabulary;
  // Appended directly: emplace() would first search all entries, a quadratic cost.
  OrderedJson::object_t::Container& entries = vocabulary;
  entries.reserve(size_t(tokenizer.size()));
  for (TokenId id = 0; id < tokenizer.size(); ++id) entries.emplace_back(tokenizer.raw(id), id);
  return vocabulary;
}

OrderedJson added_tokens_of(const Tokenizer& tokenizer) {
  OrderedJson list = OrderedJson::array();
  for (TokenId id = 0; id < tokenizer.size(); ++id)
    if (is_added(tokenizer.type(id)))
      list.push_back({{"id", id},
                      {"content", tokenizer.raw(id)},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", tokenizer.is_control(id)}});
  return list;
}

OrderedJson normalizer_of(const Metadata& meta) {
  OrderedJson steps = OrderedJson::array();
  for (const std::string_view step : meta.strs("tokenizer.normalizer"))
    steps.push_back({{"type", normal_form(step)}});
  if (steps.empty()) return nullptr;
  return steps.size() == 1 ? steps[0] : OrderedJson{{"type", "Sequence"}, {"normalizers", steps}};
}

OrderedJson pre_tokenizer_of(const Texts& patterns) {
  OrderedJson steps = OrderedJson::array();
  for (const std::string_view pattern : patterns)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The tokens before and after a text.
OrderedJson post_processor_of(const Tokenizer& tokenizer, bool adds_eos) {
  if (!tokenizer.adds_bos() && !adds_eos) return nullptr;
  OrderedJson tokens = OrderedJson::object();
  const auto sequence = [&](const std::vector<const char*>& texts) {
    OrderedJson parts = OrderedJson::array();
    int type = 0;
    const auto add = [&](TokenId id) {
      const std::string name(tokenizer.raw(id));
      parts.push_back({{"SpecialToken", {{"id", name}, {"type_id", type}}}});
      tokens[name] = {
          {"id", name}, {"ids", OrderedJson::array({id})}, {"tokens", OrderedJson::array({name})}};
    };
    for (const char* text : texts) {
      if (tokenizer.adds_bos()) add(tokenizer.bos());
      parts.push_back({{"Sequence", {{"id", text}, {"type_id", type}}}});
      if (adds_eos) add(tokenizer.eos());
      ++type;
    }
    return parts;
  };
  OrderedJson one = sequence({"A"}), two = sequence({"A", "B"});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(one)},
          {"pair", std::move(two)},
          {"special_tokens", std::move(tokens)}};
}

std::string config_text(const Metadata& meta, const Tokenizer& tokenizer) {
  OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"clean_up_tokenization_spaces", false}};
  const auto name = [&](const char* key, int64_t id) {
    if (id >= 0) config[key] = tokenizer.raw(TokenId(id));
  };
  name("bos_token", tokenizer.bos());
  name("eos_token", tokenizer.eos());
  name("unk_token", tokenizer.unk());
  name("pad_token", meta.integer("tokenizer.pad_id", -1));
  if (meta.has("model.context_length"))
    config["model_max_length"] = meta.integer("model.context_length");
  if (meta.has("tokenizer.chat_template"))
    config["chat_template"] = meta.str("tokenizer.chat_template");
  return written_exactly(config, 2) + "\n";
}

}  // namespace

TokenizerFiles tokenizer_files(const Metadata& meta) {
  if (!Tokenizer::described(meta)) return {"", "", "the model has no tokenizer"};
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::make(meta);
  if (const std::string why = why_not_exact(meta, *tokenizer); !why.empty()) return {"", "", why};
  const bool named = !meta.has("tokenizer.pre_patterns");
  const std::string pre = meta.str("tokenizer.pre", "gpt-2");
  const bool whole_words_first = named && Pretokenizer::named(pre, meta.origin).whole_words_first();
  const bool adds_eos = meta.boolean("tokenizer.add_eos", false) && tokenizer->eos() >= 0;
  const OrderedJson model = {
      {"type", "BPE"},
      {"dropout", nullptr},
      {"unk_token", nullptr},
      {"continuing_subword_prefix", nullptr},
      {"end_of_word_suffix", nullptr},
      {"fuse_unk", false},
      {"byte_fallback", false},
      {"ignore_merges", meta.boolean("tokenizer.ignore_merges", whole_words_first)},
      {"vocab", vocabulary_of(*tokenizer)},
      {"merges", merges_of(meta, *tokenizer)}};
  const OrderedJson byte_level = {{"type", "ByteLevel"},
                                  {"add_prefix_space", true},
                                  {"trim_offsets", true},
                                  {"use_regex", true}};
  const OrderedJson root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens_of(*tokenizer)},
      {"normalizer", normalizer_of(meta)},
      {"pre_tokenizer", pre_tokenizer_of(named ? Pretokenizer::published(pre, meta.origin)
                                               : meta.strs("tokenizer.pre_patterns"))},
      {"post_processor", post_processor_of(*tokenizer, adds_eos)},
      {"decoder", byte_level},
      {"model", model}};
  try {
    return {written_exactly(root, 1) + "\n", config_text(meta, *tokenizer), ""};
  } catch (const OrderedJson::type_error&) {
    return {"", "", "one of its texts is not UTF-8"};
  }
}

}  // namespace chaski
