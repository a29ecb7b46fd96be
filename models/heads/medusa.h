// Heads that guess several tokens ahead of a model from one of its hidden rows (Medusa-1, Cai et
// al. 2024). Behind the row that token t is drawn from, head i says what token t + 1 + i will be: a
// few blocks x + silu(W x + b), and a matrix of its own for the vocabulary.
#pragma once
#include <vector>

#include "ggml-like-tensor/graph.h"
#include "models/facts.h"

namespace chaski {

struct MedusaHeads {
  static constexpr int64_t kMostHeads = 64, kMostBlocks = 16;

  int64_t heads = 0, blocks = 0;  // blocks: of each head
  int64_t dim = 0, vocab = 0;     // of the model that they guess for

  void tensors(Slots& slots);
  void bind(const Weights& weights);  // those that tensors() named
  // A row of `dim` numbers comes in, one of `vocab` goes out.
  void build(Graph& graph, int head) const;

 private:
  struct Head {
    std::vector<Linear> blocks;
    Linear output;
  };
  std::vector<Head> heads_;
};

}  // namespace chaski
