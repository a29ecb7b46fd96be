// tokenizer.json, and vocab.json with merges.txt. The format describes arbitrary pipelines. These
// are recognised; any other is refused by name:
//   byte-level      pre_tokenizer [Split | Digits | Punctuation]... ByteLevel        -> kind bpe
//   SentencePiece   spaces to U+2581 by normalizer or Metaspace                      -> kind spm
//   Unigram, WordPiece: tokenizer_steps.cpp                       -> kinds unigram and wordpiece
// The file does not have SentencePiece's scores. Minus the rank of a merge replaces the score of
// the piece that the merge makes.
#include <algorithm>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/hash_index.h"
#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/base/nearest.h"
#include "models/import/tokenizer/pre_patterns.h"
#include "models/import/tokenizer/tokenizer_defaults.h"
#include "models/import/tokenizer/tokenizer_kinds.h"
#include "models/import/tokenizer/tokenizer_parts.h"
#include "models/import/tokenizer/tokenizer_steps.h"

namespace chaski {
namespace {

constexpr double kNeverMerged = -1e9;  // below every rank

bool has_step(const Json& pipeline, std::string_view list, std::string_view type) {
  bool found = false;
  each_step(pipeline, list, [&](const Json& step) { found |= step["type"].str() == type; });
  return found;
}

// Escapes a literal for a regular expression.
std::string quoted(const std::string& literal) {
  std::string out;
  for (char c : literal) {
    if (std::string_view(R"(\^$.|?*+()[]{}-)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string split_pattern(const Json& step) {
  // Text between matches becomes a piece too. So "Removed, inverted" equals "Isolated" if the
  // pattern matches all of the text, which holds for the patterns that are written so.
  const bool inverted = step["invert"].boolean(false);
  const char* behavior = inverted ? "Removed" : "Isolated";
  if (step["behavior"].str() != behavior) step["behavior"].wrong(behavior);
  const Json pattern = step["pattern"];
  return pattern.has("String") ? quoted(pattern["String"].str()) : pattern["Regex"].str();
}

void read_byte_level(const Json& root, TokenizerParts& parts) {
  parts.kind = "bpe";
  each_step(root["normalizer"], "normalizers",
            [&](const Json& step) { read_normalizer_step(step, parts); });
  each_step(root["pre_tokenizer"], "pretokenizers", [&](const Json& step) {
    const std::string type = step["type"].str();
    if (type == "Split") {
      parts.pre_patterns.push_back(split_pattern(step));
    } else if (type == "Digits") {
      parts.pre_patterns.push_back(step["individual_digits"].boolean(false) ? R"(\p{N})"
                                                                            : R"(\p{N}+)");
    } else if (type == "ByteLevel") {
      if (step["use_regex"].boolean(true)) parts.pre_patterns.push_back(kGpt2Pattern);
      parts.add_space_prefix = step["add_prefix_space"].boolean(true);
    } else if (type == "Punctuation") {
      const bool run = step["behavior"].str("Isolated") == "Contiguous";
      parts.pre_patterns.push_back(std::string(R"([!-/:-@\[-`{-~\p{P}])") + (run ? "+" : ""));
    } else {
      step["type"].wrong("Split, Digits, Punctuation or ByteLevel");
    }
  });
  if (parts.pre_patterns.empty()) parts.pre_patterns.push_back(kWholeTextPattern);
}

void read_space_step(const Json& step, TokenizerParts& parts, bool& spaces) {
  const std::string type = step["type"].str();
  if (type == "Prepend" && step["prepend"].str() == kSpace) {
    parts.add_space_prefix = true;
  } else if (type == "Replace" && step["pattern"]["String"].str() == " " &&
             step["content"].str() == kSpace) {
    spaces = true;
  } else {
    read_normalizer_step(step, parts);
  }
}

void read_metaspace(const Json& step, TokenizerParts& parts, bool& spaces) {
  if (step["type"].str() != "Metaspace") step["type"].wrong("ByteLevel or Metaspace");
  if (step["replacement"].str() != kSpace) step["replacement"].wrong("▁");
  parts.every_space = step["split"].boolean(true);
  parts.add_space_prefix = step["prepend_scheme"].str("always") != "never";
  parts.prefix_once = spaces = true;
}

void read_sentencepiece_like(const Json& root, TokenizerParts& parts) {
  parts.kind = "spm";
  parts.add_space_prefix = false;
  bool spaces = false;
  each_step(root["normalizer"], "normalizers",
            [&](const Json& step) { read_space_step(step, parts, spaces); });
  each_step(root["pre_tokenizer"], "pretokenizers",
            [&](const Json& step) { read_metaspace(step, parts, spaces); });
  if (!spaces) root["pre_tokenizer"].wrong("ByteLevel, or spaces replaced by ▁");
}

void read_vocabulary(const Json& vocab, bool bytes, TokenizerParts& parts) {
  parts.pieces += vocab.size();
  parts.tokens.reserve(parts.pieces), parts.types.reserve(parts.pieces);
  const auto most = static_cast<int64_t>(parts.most_ids());
  vocab.each([&](const std::string& piece, const Json& id) {
    if (id.integer() < 0 || id.integer() >= most)
      id.wrong(fmt::format("an id from 0 to {}", most - 1));
    parts.put(id.integer(), piece, bytes && is_byte_piece(piece) ? kByte : kNormal);
  });
}

TextIndex ids_of(const TokenizerParts& parts) {
  TextIndex ids(parts.tokens.size());
  for (size_t id = 0; id < parts.tokens.size(); ++id) ids.put(parts.tokens, id);
  return ids;
}

// `merge` is "left right". Returns the id of the merged piece, or -1 if one of the three pieces is
// not in the vocabulary: such a merge is skipped. A tokenizer that reads merges skips it itself.
int64_t check_merge(const TokenizerParts& parts, const TextIndex& ids, std::string_view merge,
                    size_t rank) {
  const size_t space = merge.find(' ');
  const bool pair = space != merge.npos && merge.find(' ', space + 1) == merge.npos;
  const std::string_view left = merge.substr(0, space), right = pair ? merge.substr(space + 1) : "";
  if (left.empty() || right.empty())
    fail(Exit::bad_file, "{}: merge {} is \"{}\", expected two pieces", parts.file, rank,
         escaped(merge.substr(0, 80)));
  const auto id = [&](std::string_view piece) { return ids.find(parts.tokens, piece); };
  return id(left) < 0 || id(right) < 0 ? -1 : id(std::string(left).append(right));
}

std::string merge_text(const Json& merge) {
  if (!merge.is_array()) return merge.str();
  if (merge.size() != 2) merge.wrong("a pair");
  return merge.at(0).str() + " " + merge.at(1).str();
}

void read_merges(const Json& merges, const TextIndex& ids, TokenizerParts& parts) {
  const bool spm = parts.kind == "spm";
  if (spm) parts.scores.assign(parts.tokens.size(), kNeverMerged);
  size_t rank = 0;
  merges.each([&](const Json& item) {
    const std::string merge = merge_text(item);
    const int64_t made = check_merge(parts, ids, merge, rank);
    if (!spm) {
      parts.merges.push_back(merge);
      // if several merges make a piece, the first one counts
    } else if (made >= 0 && parts.scores[made] == kNeverMerged) {
      parts.scores[made] = -static_cast<double>(rank);
    }
    ++rank;
  });
}

// TemplateProcessing: the piece before the text is BOS, the piece after it is EOS.
void read_template(const Json& step, TokenizerParts& parts) {
  const std::string type = step["type"].str();
  if (type == "ByteLevel") return;  // trims offsets, which chaski does not use
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    parts.bos = step["cls"].at(0).str(), parts.eos = step["sep"].at(0).str();
    parts.add_bos = parts.add_eos = true;
    return;
  }
  if (type != "TemplateProcessing")
    step["type"].wrong("TemplateProcessing, RobertaProcessing, BertProcessing or ByteLevel");
  bool after = false;
  parts.add_bos = parts.add_eos = false;
  step["single"].each([&](const Json& part) {
    if (part.has("Sequence"))
      after = true;
    else if (after)
      parts.eos = part["SpecialToken"]["id"].str(), parts.add_eos = true;
    else
      parts.bos = part["SpecialToken"]["id"].str(), parts.add_bos = true;
  });
}

void check_model(const Json& model) {
  const std::string type = model["type"].str("BPE");
  const std::vector<std::string> known = tokenizer_kinds(&TokenizerKind::json);
  if (std::find(known.begin(), known.end(), type) == known.end())
    model["type"].wrong(expected_names(type, known));
  if (type == "WordPiece") return;
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model[key].str("").empty()) model[key].wrong("none");
}

}  // namespace

bool is_byte_piece(const std::string& piece) {
  auto hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
  };
  return piece.size() == 6 && piece.starts_with("<0x") && hex(piece[3]) && hex(piece[4]) &&
         piece[5] == '>';
}

void TokenizerParts::put(int64_t id, const std::string& piece, PieceType type) {
  if (id < 0 || id >= static_cast<int64_t>(most_ids()))
    fail(Exit::bad_file, "{}: id of a piece is {}, expected 0 to {}", file, id, most_ids() - 1);
  if (id >= static_cast<int64_t>(tokens.size())) tokens.resize(id + 1), types.resize(id + 1, 0);
  if (types[id] != 0 && tokens[id] != piece)
    fail(Exit::bad_file, "{}: id {} is \"{}\" and \"{}\", expected one piece", file, id,
         escaped(tokens[id].substr(0, 80)), escaped(piece.substr(0, 80)));
  tokens[id] = piece, types[id] = type;
}

void TokenizerParts::fill_holes(size_t size) {
  for (size_t i = 0; i < std::max(size, tokens.size()); ++i)
    if (i >= tokens.size() || types[i] == 0) put(i, fmt::format("[UNUSED{}]", i), kUnused);
  if (has_scores()) scores.resize(tokens.size(), kNeverMerged);
}

void put_added_tokens(const Json& added, TokenizerParts& parts) {
  auto put = [&](int64_t id, const Json& token) {
    const bool unknown =
        id >= 0 && id < static_cast<int64_t>(parts.types.size()) && parts.types[id] == kUnknown;
    const PieceType type = token["special"].boolean(false) ? kControl : kUserDefined;
    parts.put(id, token["content"].str(), unknown ? kUnknown : type);
  };
  parts.pieces += added.size();
  if (added.is_object()) {
    added.each([&](const std::string& key, const Json& token) {
      if (key.empty() || key.size() > 7 || key.find_first_not_of("0123456789") != std::string::npos)
        token.wrong("an id as key");
      put(std::stoll(key), token);
    });
    return;
  }
  added.each([&](const Json& token) { put(token["id"].integer(), token); });
}

TokenizerParts read_tokenizer_json(const std::string& path) {
  const Json root = read_json(path), model = root["model"];
  check_model(model);
  TokenizerParts parts;
  parts.file = path;
  parts.unk = model["unk_token"].str("");
  const std::string type = model["type"].str("BPE");
  if (type == "Unigram") {
    read_unigram(root, parts);
  } else if (type == "WordPiece") {
    read_wordpiece(root, parts);
  } else {
    has_step(root["pre_tokenizer"], "pretokenizers", "ByteLevel")
        ? read_byte_level(root, parts)
        : read_sentencepiece_like(root, parts);
    parts.ignore_merges = model["ignore_merges"].boolean(false);
    read_vocabulary(model["vocab"], model["byte_fallback"].boolean(false), parts);
  }
  put_added_tokens(root["added_tokens"], parts);
  const TextIndex ids = ids_of(parts);
  parts.fill_holes(0);
  if (type == "BPE") read_merges(model["merges"], ids, parts);
  if (const int32_t unk = ids.find(parts.tokens, parts.unk); unk >= 0 && parts.kind != "bpe")
    parts.types[unk] = kUnknown;
  each_step(root["post_processor"], "processors",
            [&](const Json& step) { read_template(step, parts); });
  return parts;
}

TokenizerParts read_vocab_and_merges(const std::string& vocab_path,
                                     const std::string& merges_path) {
  TokenizerParts parts;
  parts.file = vocab_path;
  parts.kind = "bpe";
  parts.pre_patterns.push_back(kGpt2Pattern);
  parts.add_space_prefix = false;
  read_vocabulary(read_json(vocab_path), false, parts);
  const TextIndex ids = ids_of(parts);
  parts.fill_holes(0);
  if (const int32_t end = ids.find(parts.tokens, "<|endoftext|>"); end >= 0)
    parts.types[end] = kControl, parts.eos = parts.tokens[end];

  parts.file = merges_path;
  auto mapping = Mapping::open(merges_path);
  std::string_view lines(reinterpret_cast<const char*>(mapping->bytes().data()),
                         mapping->bytes().size());
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (line.empty() || (parts.merges.empty() && line.starts_with("#version"))) continue;
    check_merge(parts, ids, line, parts.merges.size());
    parts.merges.push_back(line);
  }
  return parts;
}

}  // namespace chaski
