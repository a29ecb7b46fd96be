// What every importer checks before it hands a tokenizer over: that its lists fit each other and
// what files leave out is filled in.
#pragma once
#include <string_view>

#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

// Fills tokenizer.types, .scores, .add_*, .ignore_merges and .eos_ids where missing, then checks
// sizes and ids. Nothing happens without tokenizer.kind. Throws Error(bad_file).
void complete_tokenizer(Metadata& meta);

// The ids that end an answer as far as eos_id, eot_id and the spelling of control pieces tell.
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
