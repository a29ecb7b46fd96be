// Divides a pass between ranks: machines, or threads in tests. All ranks have the same graph and
// batch, and each computes some columns of a value from whole rows of its input. So a row of
// a weight is multiplied in the same order as by one machine, and the bits do not depend on the
// number of ranks. Then the ranks send each other their columns (a gather); nothing is summed
// across ranks.
//
// A matmul is divided by rows of its weights, in multiples of 32: two strips, and a block of the
// next matmul's quantized input. Experts are divided by the same rows of every expert. Attention is
// divided by key heads, with their query heads, keys and values. A rank's pages have its heads
// only. The outputs of q, k and v are not gathered if the rows of the heads are whole strips.
// Everything else is computed by every rank: norms, routers, recurrent states, and attention with
// one key head or ALiBi.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "ggml-like-tensor/graph.h"

namespace chaski {

// A value that the ranks complete together after a step.
struct Gather {
  size_t step = 0;  // index of the node
  // Gathers of one node of the whole graph are one message. A rank that does not compute the node
  // may have gathers of several nodes after one step.
  size_t message = 0;
  ValueId own = kNone;         // the columns of this rank; kNone: it has none
  ValueId whole = kNone;       // all columns
  std::vector<int64_t> first;  // by rank: its first column; last the number of columns
  bool for_first = false;      // only rank 0 needs it
};

class RankShare {
 public:
  // speeds: by rank, in any unit; work is divided in proportion. Weights of a node with fewer bytes
  // than `least_bytes` are not divided: multiplying them takes less time than a gather.
  RankShare(int rank, std::vector<double> speeds, uint64_t least_bytes);
  ~RankShare();

  int rank() const { return rank_; }
  int ranks() const { return int(speeds_.size()); }
  // Rewrites a fused graph to the part of this rank. Weights are views of the original ones, which
  // this object owns.
  std::vector<Gather> divide(Graph& fused);
  // Where the rows of an expert are, if `view` is a view of experts that divide() made; else null.
  ExpertPlaces* places_of(const Weight& view) const;
  // n units in parts for all ranks: the first unit of each rank, then n.
  std::vector<int64_t> cut(int64_t n) const;

 private:
  friend class Divider;
  class SomeRows;
  const Weight* keep(Weight view, const Weight& of, int64_t first, int64_t end);
  const Weight* rows(const Weight& w, int64_t first, int64_t end);
  const Weight* columns(const Weight& w, int64_t first, int64_t end);
  const Weight* expert_rows(const Weight& w, int64_t experts, int64_t first, int64_t end);
  const Weight* expert_columns(const Weight& w, int64_t experts, int64_t first, int64_t end);

  const int rank_;
  const std::vector<double> speeds_;
  const uint64_t least_bytes_;
  std::map<std::tuple<const Weight*, int64_t, int64_t>, std::unique_ptr<Weight>> views_;
  std::map<const Weight*, std::unique_ptr<SomeRows>> places_;  // by view
  std::deque<std::vector<float>> copies_;
};

}  // namespace chaski
