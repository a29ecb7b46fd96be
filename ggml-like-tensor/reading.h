// Which keys and values the attention of a pass reads, and for which tokens: sequences that were
// forked, or branches of a tree of drafts, have the same pages as far as they are one, and those
// are read for all of them together.
#pragma once
#include "ggml-like-tensor/batch.h"
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

// Keeps its memory from one pass to the next, so that a decode step takes none.
class ReadingPlanner {
 public:
  // Fills batch.readings, by pool; those of recurrent states stay empty. Whoever changes the cells,
  // sequences or tables of a batch calls it before the batch is run.
  void plan(Batch& batch, const std::vector<StateLayout::Pool>& pools);

 private:
  struct Found {
    int32_t group;
    Reading::Run run;
  };
  struct Pool;

  std::vector<Found> found_;
  std::vector<const int32_t*> tables_;   // by group: one that has its pages
  std::vector<int32_t> newest_, older_;  // groups of a chunk: the newest, and the one before each
};

inline void plan_readings(Batch& batch, const std::vector<StateLayout::Pool>& pools) {
  ReadingPlanner().plan(batch, pools);
}

}  // namespace chaski
