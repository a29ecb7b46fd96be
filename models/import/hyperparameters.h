// What every importer checks before it hands a model over: that the numbers of metadata.h are there
// and possible together, and that the tokenizer's lists fit each other. Whether the tensors match
// is the loader's question, not asked here.
#pragma once
#include <string_view>

#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

// Fills head_count_kv, head_dim, rope_dim, rope_theta and rope_scaling where they are missing and
// have one meaning, then checks everything. Throws Error(bad_file).
void complete_hyperparameters(Metadata& meta);

// Fills tokenizer.types, .scores, .add_*, .ignore_merges and .eos_ids where missing, then checks
// sizes and ids. Nothing happens without tokenizer.kind.
void complete_tokenizer(Metadata& meta);

// The ids that end an answer as far as eos_id, eot_id and the spelling of control pieces tell.
std::vector<int64_t> guessed_eos_ids(const Metadata& meta);

// Pre-tokenizers whose vocabulary takes a whole word as it is before any merge is tried.
bool pre_ignores_merges(std::string_view pre);

enum PieceType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

}  // namespace chaski
