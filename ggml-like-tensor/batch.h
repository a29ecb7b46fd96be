// What one forward pass is about: tokens, each of some sequence at some position. Prefill, decode,
// the check of a draft and eight sequences at once differ in this and in nothing else. Tokens of
// one sequence are consecutive, in order of position.
#pragma once
#include <cstdint>
#include <vector>

#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

struct Batch {
  std::vector<int32_t> tokens, positions;
  // per token: its sequence's block table, entry p / 16 is the page of position p
  std::vector<const int32_t*> tables;
  std::vector<int32_t> outputs;  // indices of the tokens whose logits are wanted
  KvView kv;
  // per RopeSpec of the graph: [position][rope_dim / 2] pairs cos, sin
  std::vector<const float*> ropes;

  int64_t size() const { return int64_t(tokens.size()); }
};

}  // namespace chaski
