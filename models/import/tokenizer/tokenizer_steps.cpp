#include "models/import/tokenizer/tokenizer_steps.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/base/nearest.h"
#include "models/import/tokenizer/tokenizer_defaults.h"

namespace chaski {
namespace {

void append(TokenizerParts& parts, const std::vector<std::string>& steps) {
  for (const std::string& step : steps) parts.normalizer.push_back(step);
}

std::vector<uint8_t> from_base64(const Json& value) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : value.str()) {
    if (c == '=' || c == '\n') continue;
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) value.wrong("base64");
    bits = bits << 6 | static_cast<uint32_t>(digit), count += 6;
    if (count >= 8) bytes.push_back(static_cast<uint8_t>(bits >> (count -= 8)));
  }
  return bytes;
}

void read_bert(const Json& step, TokenizerParts& parts) {
  const bool small = step["lowercase"].boolean(true);
  append(parts, bert_normalizer(step["clean_text"].boolean(true),
                                step["handle_chinese_chars"].boolean(true),
                                step["strip_accents"].boolean(small), small));
}

// Metaspace: spaces become U+2581, one is added in front, and each begins a word.
void read_metaspace(const Json& step, TokenizerParts& parts) {
  if (step["replacement"].str("▁") != kSpace) step["replacement"].wrong("▁");
  parts.every_space = step["split"].boolean(true);
  parts.add_space_prefix =
      step["prepend_scheme"].str(step["add_prefix_space"].boolean(true) ? "always" : "never") !=
      "never";
  parts.prefix_once = true;
}

void read_spaces(const Json& step, TokenizerParts& parts) {
  const std::string& type = step["type"].str();
  if (type == "Metaspace") return read_metaspace(step, parts);
  if (type != "WhitespaceSplit") step["type"].wrong("Metaspace or WhitespaceSplit");
  append(parts, {"regex", "\\s+", " ", "squeeze"});
}

// The number that Hugging Face's tokenizers (serde_json) read from the shortest decimal text of x:
// the digits as an integer, divided by a power of ten. The result may be a neighbour of x, and that
// can decide between equally good ways to split a text.
double as_serde_reads(double x) {
  const std::string text = fmt::format("{}", std::fabs(x));
  uint64_t digits = 0;
  int decimals = 0;
  size_t at = 0;
  for (bool point = false; at < text.size() && text[at] != 'e'; ++at) {
    if (text[at] == '.') {
      point = true;
      continue;
    }
    if (text[at] < '0' || text[at] > '9') return x;  // not finite
    digits = digits * 10 + static_cast<uint64_t>(text[at] - '0'), decimals += point;
  }
  const int power = (at < text.size() ? std::stoi(text.substr(at + 1)) : 0) - decimals;
  const double scale = std::pow(10.0, std::abs(power)),
               read = power < 0 ? double(digits) / scale : double(digits) * scale;
  return x < 0 ? -read : read;
}

}  // namespace

std::vector<std::string> bert_normalizer(bool clean, bool han, bool accents_go, bool small) {
  std::vector<std::string> steps;
  if (clean) steps.emplace_back("bert_clean");
  if (han) steps.emplace_back("bert_han");
  if (accents_go) steps.emplace_back("nfd"), steps.emplace_back("strip_marks");
  if (small) steps.emplace_back("lowercase");
  return steps;
}

void read_normalizer_step(const Json& step, TokenizerParts& parts) {
  constexpr std::array<std::array<std::string_view, 2>, 6> kPlain{
      {{"NFC", "nfc"},
       {"NFD", "nfd"},
       {"NFKC", "nfkc"},
       {"NFKD", "nfkd"},
       {"Lowercase", "lowercase"},
       {"StripAccents", "strip_accents"}}};
  const std::string& type = step["type"].str();
  for (const auto& [theirs, ours] : kPlain)
    if (type == theirs) return append(parts, {std::string(ours)});
  if (type == "Strip") {
    if (step["strip_left"].boolean(true)) append(parts, {"strip_left"});
    if (step["strip_right"].boolean(true)) append(parts, {"strip_right"});
  } else if (type == "Replace") {
    const Json pattern = step["pattern"];
    const bool literal = pattern.has("String");
    append(parts, {literal ? "replace" : "regex", pattern[literal ? "String" : "Regex"].str(),
                   step["content"].str()});
  } else if (type == "Prepend") {
    append(parts, {"prepend", step["prepend"].str()});
  } else if (type == "BertNormalizer") {
    read_bert(step, parts);
  } else if (type == "Precompiled") {
    parts.charsmap = from_base64(step["precompiled_charsmap"]);
    append(parts, {"charsmap"});
  } else {
    step["type"].wrong(
        expected_names(type, {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip",
                              "Replace", "Prepend", "BertNormalizer", "Precompiled"}));
  }
}

void read_unigram(const Json& root, TokenizerParts& parts) {
  parts.kind = "unigram";
  parts.add_space_prefix = false;
  each_step(root["normalizer"], "normalizers",
            [&](const Json& step) { read_normalizer_step(step, parts); });
  each_step(root["pre_tokenizer"], "pretokenizers",
            [&](const Json& step) { read_spaces(step, parts); });
  const Json vocab = root["model"]["vocab"], unk = root["model"]["unk_id"];
  parts.pieces += vocab.size();
  const bool bytes = root["model"]["byte_fallback"].boolean(false);
  vocab.each([&](const Json& entry) {
    if (entry.size() != 2) entry.wrong("a piece and its score");
    const std::string piece = entry.at(0).str();
    parts.put(static_cast<int64_t>(parts.scores.size()), piece,
              bytes && is_byte_piece(piece) ? kByte : kNormal);
    parts.scores.push_back(as_serde_reads(entry.at(1).number()));
  });
  if (!unk.present()) return;
  if (unk.integer() < 0 || unk.integer() >= static_cast<int64_t>(parts.tokens.size()))
    unk.wrong("the id of a piece");
  parts.unk = parts.tokens[static_cast<size_t>(unk.integer())];
  parts.types[static_cast<size_t>(unk.integer())] = kUnknown;
}

void read_wordpiece(const Json& root, TokenizerParts& parts) {
  parts.kind = "wordpiece";
  each_step(root["normalizer"], "normalizers",
            [&](const Json& step) { read_normalizer_step(step, parts); });
  each_step(root["pre_tokenizer"], "pretokenizers", [](const Json& step) {
    if (step["type"].str() != "BertPreTokenizer") step["type"].wrong("BertPreTokenizer");
  });
  const Json model = root["model"];
  if (model["continuing_subword_prefix"].str("##") != "##")
    model["continuing_subword_prefix"].wrong("##");
  if (model["max_input_chars_per_word"].integer(100) != 100)
    model["max_input_chars_per_word"].wrong("100");
  parts.unk = model["unk_token"].str("[UNK]");
  const Json vocab = model["vocab"];
  parts.pieces += vocab.size();
  vocab.each([&](const std::string& piece, const Json& id) {
    parts.put(id.integer(), piece, piece == parts.unk ? kUnknown : kNormal);
  });
}

TokenizerParts read_vocab_txt(const std::string& path) {
  TokenizerParts parts;
  parts.file = path;
  parts.kind = "wordpiece";
  parts.bos = "[CLS]", parts.eos = "[SEP]", parts.unk = "[UNK]", parts.pad = "[PAD]";
  parts.add_bos = parts.add_eos = true;
  parts.normalizer = bert_normalizer(true, true, true, true);
  const auto mapping = Mapping::open(path);
  std::istringstream lines(
      std::string(reinterpret_cast<const char*>(mapping->bytes().data()), mapping->bytes().size()));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    ++parts.pieces;
    const bool steers = line.starts_with('[') && line.ends_with(']') && line.size() > 2;
    parts.put(static_cast<int64_t>(parts.tokens.size()), line,
              line == parts.unk ? kUnknown
              : steers          ? kControl
                                : kNormal);
  }
  return parts;
}

}  // namespace chaski
