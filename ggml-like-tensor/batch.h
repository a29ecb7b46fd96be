// What one forward pass is about: tokens, each of some sequence at some position. Prefill, decode,
// the check of a draft and eight sequences at once differ in this and in nothing else. Tokens of
// one sequence are consecutive, in order of cells.
#pragma once
#include <cstdint>
#include <vector>

#include "ggml-like-tensor/state_layout.h"

namespace chaski {

struct Batch {
  // per token; its position is what rotary angles and learned positions go by
  std::vector<int32_t> tokens, positions;
  // per token: how many of its sequence were stored before it. Its keys and values are in page
  // cell / 16 of its sequence's tables, slot cell % 16; it sees cells up to its own
  std::vector<int32_t> cells;
  std::vector<int32_t> sequences;  // per token: whose it is, an index into each pool's tables
  std::vector<std::vector<const int32_t*>> tables;  // (pools, sequences): pages, in order of cells
  std::vector<int32_t> outputs;                     // indices of the tokens whose logits are wanted
  StateLayout states;                               // with the addresses of this pass's pools
  // per RopeSpec of the graph: [position][rope_dim / 2] pairs cos, sin
  std::vector<const float*> ropes;

  int64_t size() const { return int64_t(tokens.size()); }
  // Of a KvView or RecurrentView.
  template <class View>
  [[gnu::always_inline]] const int32_t* table(const View& s, int64_t t) const {
    return tables[size_t(s.pool)][size_t(sequences[size_t(t)])];
  }
};

}  // namespace chaski
