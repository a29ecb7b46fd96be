#include "ggml-like-tensor/reading.h"

#include <algorithm>

namespace chaski {

// Plans the reading of one pool.
struct ReadingPlanner::Pool {
  Pool(ReadingPlanner& planner, const Batch& batch, size_t pool, const StateLayout::Pool& kind,
       Reading& reading)
      : p_(planner), b_(batch), pool_(pool), kind_(kind), reading_(reading) {}

  void plan() {
    p_.found_.clear(), p_.tables_.clear(), p_.newest_.clear(), p_.older_.clear();
    reading_.groups.clear(), reading_.runs.clear(), reading_.sequences = reading_.alone = 0;
    const auto size = int32_t(b_.cells.size());
    for (int32_t first = 0, end; first < size; first = end) {
      for (end = first + 1; end < size && b_.sequences[size_t(end)] == b_.sequences[size_t(first)];)
        ++end;
      ++reading_.sequences;
      sequence(first, end);
    }
    // store the runs of each group next to each other, in the order in which they were found
    for (const Found& f : p_.found_) ++reading_.groups[size_t(f.group)].end;
    int32_t at = 0;
    for (Reading::Group& g : reading_.groups) {
      g.first = at, at += g.end;
      g.end = g.first;
    }
    reading_.runs.resize(size_t(at));
    for (const Found& f : p_.found_)
      reading_.runs[size_t(reading_.groups[size_t(f.group)].end++)] = f.run;
  }

 private:
  int64_t first_seen(int32_t token) const { return kind_.first_seen(b_.cells[size_t(token)]); }

  // Adds everything that the sequence of tokens [first, end) reads.
  void sequence(int32_t first, int32_t end) {
    const int32_t* table = b_.tables[pool_][size_t(b_.sequences[size_t(first)])];
    const int64_t last_chunk = b_.cells[size_t(end) - 1] / kChunk;
    for (int64_t chunk = first_seen(first) / kChunk; chunk <= last_chunk; ++chunk) {
      const int64_t start = chunk * kChunk;
      int32_t from = first, to = end;  // tokens that see any part of the chunk
      while (from < to && b_.cells[size_t(from)] < start) ++from;
      while (to > from && first_seen(to - 1) >= start + kChunk) --to;
      if (from == to) continue;
      const int64_t low = std::max(start, first_seen(from)),
                    high = std::min<int64_t>(b_.cells[size_t(to) - 1], start + kChunk - 1);
      const Reading::Group wanted{int32_t(chunk), int32_t(low / kPage), int32_t(high / kPage + 1),
                                  0, 0};
      p_.found_.push_back({group(wanted, table), {from, to}});
      ++reading_.alone;
    }
  }

  // The group that reads the same pages; makes it if there is none.
  int32_t group(const Reading::Group& wanted, const int32_t* table) {
    const auto chunk = size_t(wanted.chunk);
    if (chunk >= p_.newest_.size()) p_.newest_.resize(chunk + 1, -1);
    for (int32_t i = p_.newest_[chunk]; i >= 0; i = p_.older_[size_t(i)]) {
      const Reading::Group& g = reading_.groups[size_t(i)];
      if (g.from == wanted.from && g.to == wanted.to &&
          std::equal(table + g.from, table + g.to, p_.tables_[size_t(i)] + g.from))
        return i;
    }
    const auto made = int32_t(reading_.groups.size());
    reading_.groups.push_back(wanted), p_.tables_.push_back(table);
    p_.older_.push_back(p_.newest_[chunk]), p_.newest_[chunk] = made;
    return made;
  }

  ReadingPlanner& p_;
  const Batch& b_;
  const size_t pool_;
  const StateLayout::Pool& kind_;
  Reading& reading_;
};

void ReadingPlanner::plan(Batch& batch, const std::vector<StateLayout::Pool>& pools) {
  batch.readings.resize(pools.size());
  for (size_t i = 0; i < pools.size(); ++i)
    if (!pools[i].recurrent) Pool(*this, batch, i, pools[i], batch.readings[i]).plan();
}

}  // namespace chaski
