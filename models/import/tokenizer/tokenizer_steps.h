// The parts of a tokenizer.json other than BPE: normalizer steps, and the models Unigram and
// WordPiece.
#pragma once
#include <string_view>

#include "models/import/json_file.h"
#include "models/import/tokenizer/tokenizer_parts.h"

namespace chaski {

// Replaces a space in pieces.
inline constexpr std::string_view kSpace = "\u2581";

// Calls f for each step of a pipeline, which is a Sequence or a single step.
template <class F>
void each_step(const Json& step, std::string_view list, F&& f) {
  if (!step.present()) return;
  if (step["type"].str() != "Sequence") return f(step);
  for (size_t i = 0; i < step[list].size(); ++i) each_step(step[list].at(i), list, f);
}

// Appends the step to parts.normalizer (engine/text/tokenizer/normalizer.h). Throws Error(bad_file)
// for an unsupported step.
void read_normalizer_step(const Json& step, TokenizerParts& parts);

// Normalizer, pre-tokenizer and vocabulary of a model of type Unigram or WordPiece.
void read_unigram(const Json& root, TokenizerParts& parts);
void read_wordpiece(const Json& root, TokenizerParts& parts);

// vocab.txt of a BERT model: one piece a line.
TokenizerParts read_vocab_txt(const std::string& path);
// BERT's normalizer steps. `small`: lower-case, without accents.
std::vector<std::string> bert_normalizer(bool clean, bool han, bool accents_go, bool small);

}  // namespace chaski
