// Which keys and values the attention of a pass reads, and for which tokens. Forked sequences and
// the branches of a draft tree share the pages of their common prefix. Such pages are read once for
// all of them.
#pragma once
#include "ggml-like-tensor/batch.h"
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

// Keeps its memory from one pass to the next, so that a decode step allocates none.
class ReadingPlanner {
 public:
  // Fills batch.readings, by pool; those of recurrent states stay empty. It must be called after a
  // change of a batch's cells, sequences or tables, before the batch is run.
  void plan(Batch& batch, const std::vector<StateLayout::Pool>& pools);

 private:
  struct Found {
    int32_t group;
    Reading::Run run;
  };
  struct Pool;

  std::vector<Found> found_;
  std::vector<const int32_t*> tables_;   // by group: a table that has its pages
  std::vector<int32_t> newest_, older_;  // newest group of a chunk; older one of a group
};

inline void plan_readings(Batch& batch, const std::vector<StateLayout::Pool>& pools) {
  ReadingPlanner().plan(batch, pools);
}

}  // namespace chaski
