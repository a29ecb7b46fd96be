// The last step of every importer: fills in what the tokenizer files omit, and checks that the
// lists fit together.
#pragma once
#include <string_view>

#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

// Fills missing tokenizer.types, .scores, .add_*, .ignore_merges and .eos_ids, then checks sizes
// and ids. Does nothing without tokenizer.kind. Throws Error(bad_file).
void complete_tokenizer(Metadata& meta);

// The ids that end an answer, guessed from eos_id, eot_id and the spelling of control pieces.
std::vector<int64_t> guessed_eos_ids(const Metadata& meta);

enum PieceType : int8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

}  // namespace chaski
