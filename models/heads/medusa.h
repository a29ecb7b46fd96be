// Medusa-1 heads (Cai et al. 2024), which draft several tokens from one hidden row of a model. From
// the row that token t is drawn from, head i computes the logits of token t + 1 + i: a few blocks
// x + silu(W x + b), then an output matrix of its own.
#pragma once
#include <vector>

#include "ggml-like-tensor/graph.h"
#include "models/facts.h"

namespace chaski {

struct MedusaHeads {
  static constexpr int64_t kMostHeads = 64, kMostBlocks = 16;

  int64_t heads = 0, blocks = 0;  // blocks of each head
  int64_t dim = 0, vocab = 0;     // of the target model

  void tensors(Slots& slots);
  void bind(const Weights& weights);  // after tensors()
  // The input is a row of `dim` numbers, the result a row of `vocab` logits.
  void build(Graph& graph, int head) const;

 private:
  struct Head {
    std::vector<Linear> blocks;
    Linear output;
  };
  std::vector<Head> heads_;
};

}  // namespace chaski
