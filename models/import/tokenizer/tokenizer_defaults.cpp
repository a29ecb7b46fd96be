#include "models/import/tokenizer/tokenizer_defaults.h"

#include <algorithm>

#include "ggml-like-tensor/base/error.h"

namespace chaski {
namespace {

// Throws for an id outside the vocabulary. Writers use -1 for "none".
void check_id(const Metadata& meta, const char* key, int64_t pieces) {
  const int64_t id = meta.integer(key, 0);
  if (id < 0 || id >= pieces)
    fail(Exit::bad_file, "{}: {} is {}, expected 0 to {}", meta.origin, key, id, pieces - 1);
}

void check_length(const Metadata& meta, const char* key, size_t found, size_t pieces) {
  if (found != pieces)
    fail(Exit::bad_file, "{}: {} has {} entries, expected {}, one for each piece", meta.origin, key,
         found, pieces);
}

void check_tokenizer(const Metadata& meta) {
  const size_t pieces = meta.strs("tokenizer.tokens").size();
  if (pieces == 0)
    fail(Exit::bad_file, "{}: tokenizer.tokens is empty, expected the vocabulary", meta.origin);
  check_length(meta, "tokenizer.types", meta.ints("tokenizer.types").size(), pieces);
  if (meta.has("tokenizer.scores"))
    check_length(meta, "tokenizer.scores", meta.floats("tokenizer.scores").size(), pieces);
  for (const char* key : {"tokenizer.bos_id", "tokenizer.eos_id", "tokenizer.eot_id",
                          "tokenizer.unk_id", "tokenizer.pad_id"})
    check_id(meta, key, pieces);
  for (int64_t id : meta.ints("tokenizer.eos_ids"))
    if (id < 0 || id >= static_cast<int64_t>(pieces))
      fail(Exit::bad_file, "{}: tokenizer.eos_ids has {}, expected 0 to {}", meta.origin, id,
           pieces - 1);
  const int64_t vocabulary = meta.integer("model.vocab_size", pieces);
  if (static_cast<int64_t>(pieces) > vocabulary)
    fail(Exit::bad_file, "{}: tokenizer.tokens has {} pieces, expected at most model.vocab_size {}",
         meta.origin, pieces, vocabulary);
}

// SentencePiece writes better pieces first, so the order can replace missing scores.
std::vector<double> scores_by_order(size_t pieces) {
  std::vector<double> scores(pieces);
  for (size_t i = 0; i < pieces; ++i) scores[i] = -static_cast<double>(i);
  return scores;
}

// Normalizer settings that GGUF has in other keys, or not at all.
void complete_normalizer(const std::string& kind, Metadata& meta) {
  if (meta.has("tokenizer.normalizer")) return;
  std::vector<std::string> steps;
  if (meta.has("tokenizer.charsmap")) steps.emplace_back("charsmap");
  if (kind == "unigram" && meta.boolean("tokenizer.squeeze", false)) steps.emplace_back("squeeze");
  if (kind == "wordpiece") steps = {"bert_clean", "bert_han", "nfd", "strip_marks", "lowercase"};
  if (!steps.empty()) meta.set_strs("tokenizer.normalizer", std::move(steps));
}

}  // namespace

void complete_tokenizer(Metadata& meta) {
  if (!meta.has("tokenizer.kind")) return;
  const std::string& kind = meta.str("tokenizer.kind");
  const bool spm = kind == "spm" || kind == "unigram";
  const size_t pieces = meta.strs("tokenizer.tokens").size();
  if (!meta.has("tokenizer.types"))
    meta.set_ints("tokenizer.types", std::vector<int64_t>(pieces, kNormal));
  if (spm && !meta.has("tokenizer.scores"))
    meta.set_floats("tokenizer.scores", scores_by_order(pieces));
  // The settings of a named pre-tokenizer are in the tokenizer's own table.
  const bool named = kind == "bpe" && meta.has("tokenizer.pre");
  complete_normalizer(kind, meta);
  if (!named && !meta.has("tokenizer.add_bos"))
    meta.set_bool("tokenizer.add_bos", kind == "spm" || kind == "wordpiece");
  if (!meta.has("tokenizer.add_eos")) meta.set_bool("tokenizer.add_eos", kind == "wordpiece");
  if (!meta.has("tokenizer.add_space_prefix")) meta.set_bool("tokenizer.add_space_prefix", spm);
  if (!named && !meta.has("tokenizer.ignore_merges"))
    meta.set_bool("tokenizer.ignore_merges", false);
  if (!meta.has("tokenizer.eos_ids")) meta.set_ints("tokenizer.eos_ids", guessed_eos_ids(meta));
  check_tokenizer(meta);
}

std::vector<int64_t> guessed_eos_ids(const Metadata& meta) {
  constexpr std::string_view kEnds[] = {
      "<|eot_id|>",    "<|eom_id|>",      "<|im_end|>",    "<|end|>",    "<end_of_turn>",
      "<|endoftext|>", "<|end_of_text|>", "<|end_story|>", "<|return|>", "<|call|>"};
  std::vector<int64_t> ids;
  for (const char* key : {"tokenizer.eos_id", "tokenizer.eot_id"})
    if (meta.has(key)) ids.push_back(meta.integer(key));
  const auto& tokens = meta.strs("tokenizer.tokens");
  const auto& types = meta.ints("tokenizer.types");
  const auto has = [&](std::string_view piece) {
    return std::find(tokens.begin(), tokens.end(), piece) != tokens.end();
  };
  // In gpt-oss's format <|end|> ends a message, not the answer.
  const bool channels = has("<|channel|>") && has("<|return|>");
  for (size_t i = 0; i < std::min(tokens.size(), types.size()); ++i)
    if (types[i] == kControl &&
        std::find(std::begin(kEnds), std::end(kEnds), tokens[i]) != std::end(kEnds))
      ids.push_back(i);
  const auto ends_message = [&](int64_t id) {
    return channels && id >= 0 && id < std::ssize(tokens) && tokens[size_t(id)] == "<|end|>";
  };
  std::erase_if(ids, ends_message);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace chaski
