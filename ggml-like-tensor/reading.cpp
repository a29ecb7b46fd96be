#include "ggml-like-tensor/reading.h"

#include <algorithm>

namespace chaski {

namespace {

class Planner {
 public:
  Planner(const Batch& batch, size_t pool, int window) : b_(batch), pool_(pool) {
    seen_.window = window;
  }

  Reading plan() {
    const auto size = int32_t(b_.cells.size());
    for (int32_t first = 0, end; first < size; first = end) {
      for (end = first + 1; end < size && b_.sequences[size_t(end)] == b_.sequences[size_t(first)];)
        ++end;
      ++reading_.sequences;
      sequence(first, end);
    }
    // the runs of each group next to each other
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& x, const Found& y) { return x.group < y.group; });
    for (const Found& f : found_) {
      Reading::Group& g = reading_.groups[size_t(f.group)];
      if (reading_.runs.empty() || g.first == g.end) g.first = int32_t(reading_.runs.size());
      reading_.runs.push_back(f.run);
      g.end = int32_t(reading_.runs.size());
    }
    return std::move(reading_);
  }

 private:
  struct Found {
    int32_t group;
    Reading::Run run;
  };

  int64_t first_seen(int32_t token) const { return seen_.first_seen(b_.cells[size_t(token)]); }

  // Of tokens [first, end), all that the sequence has here.
  void sequence(int32_t first, int32_t end) {
    const int32_t* table = b_.tables[pool_][size_t(b_.sequences[size_t(first)])];
    const int64_t last_chunk = b_.cells[size_t(end) - 1] / kChunk;
    for (int64_t chunk = first_seen(first) / kChunk; chunk <= last_chunk; ++chunk) {
      const int64_t start = chunk * kChunk;
      int32_t from = first, to = end;  // that see any of it
      while (from < to && b_.cells[size_t(from)] < start) ++from;
      while (to > from && first_seen(to - 1) >= start + kChunk) --to;
      if (from == to) continue;
      const int64_t low = std::max(start, first_seen(from)),
                    high = std::min<int64_t>(b_.cells[size_t(to) - 1], start + kChunk - 1);
      const Reading::Group wanted{int32_t(chunk), int32_t(low / kPage), int32_t(high / kPage + 1),
                                  0, 0};
      found_.push_back({group(wanted, table), {from, to}});
      ++reading_.alone;
    }
  }

  // That reads the same pages.
  int32_t group(const Reading::Group& wanted, const int32_t* table) {
    const auto chunk = size_t(wanted.chunk);
    if (chunk >= newest_.size()) newest_.resize(chunk + 1, -1);
    for (int32_t i = newest_[chunk]; i >= 0; i = older_[size_t(i)]) {
      const Reading::Group& g = reading_.groups[size_t(i)];
      if (g.from == wanted.from && g.to == wanted.to &&
          std::equal(table + g.from, table + g.to, tables_[size_t(i)] + g.from))
        return i;
    }
    const auto made = int32_t(reading_.groups.size());
    reading_.groups.push_back(wanted), tables_.push_back(table);
    older_.push_back(newest_[chunk]), newest_[chunk] = made;
    return made;
  }

  const Batch& b_;
  const size_t pool_;
  Paged seen_;  // for its window
  Reading reading_;
  std::vector<Found> found_;
  std::vector<const int32_t*> tables_;   // by group: one that has its pages
  std::vector<int32_t> newest_, older_;  // groups of a chunk: the newest, and the one before each
};

}  // namespace

void plan_readings(Batch& batch, const std::vector<StateLayout::Pool>& pools) {
  batch.readings.assign(pools.size(), {});
  for (size_t i = 0; i < pools.size(); ++i)
    if (!pools[i].recurrent) batch.readings[i] = Planner(batch, i, pools[i].window).plan();
}

}  // namespace chaski
