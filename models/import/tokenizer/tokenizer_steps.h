// The steps of a tokenizer.json that are the same for every kind of model in it: normalizers, and
// the models that are no BPE.
#pragma once
#include <string_view>

#include "models/import/json_file.h"
#include "models/import/tokenizer/tokenizer_parts.h"

namespace chaski {

// What stands for a space in a piece.
inline constexpr std::string_view kSpace = "\u2581";

// Calls f with each step of a pipeline, be it a Sequence or a single step.
template <class F>
void each_step(const Json& step, std::string_view list, F&& f) {
  if (!step.present()) return;
  if (step["type"].str() != "Sequence") return f(step);
  for (size_t i = 0; i < step[list].size(); ++i) each_step(step[list].at(i), list, f);
}

// Appends what the step does to parts.normalizer (engine/text/tokenizer/normalizer.h). Throws
// Error(bad_file) for a step that chaski lacks.
void read_normalizer_step(const Json& step, TokenizerParts& parts);

// Normalizer, pre-tokenizer and vocabulary of a model of type Unigram, and of one of type
// WordPiece.
void read_unigram(const Json& root, TokenizerParts& parts);
void read_wordpiece(const Json& root, TokenizerParts& parts);

// vocab.txt of a BERT model: a piece a line.
TokenizerParts read_vocab_txt(const std::string& path);
// What BERT does to a text; `small`: it has no capital letters and no accents.
std::vector<std::string> bert_normalizer(bool clean, bool han, bool accents_go, bool small);

}  // namespace chaski
