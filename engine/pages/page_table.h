// The pages of one pool of states (state_layout.h) that a sequence holds: a page per 16 cells, from
// the first one still to be seen; of recurrent states the one page there is. Copies share the
// pages, and whoever writes next copies what it writes to.
#pragma once
#include <span>
#include <vector>

#include "engine/pages/kv_pool.h"
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

// A window keeps so many cells more than it shows, so that a session can go back as far at once.
constexpr int kGoBack = 1024;
// Recurrent states cannot go back: a session keeps so many copies of what it was (session.cpp).
constexpr int kSnapshots = 4;

// What a session needs at most of each pool: its context, and passes of `pass` tokens.
std::vector<int64_t> pages_of_session(std::span<const StateLayout::Pool> pools, int context,
                                      int pass);

class PageTable {
 public:
  // For `most` pages at once, at most.
  PageTable(KvPool& pool, const StateLayout::Pool& kind, int context, int64_t most);
  PageTable(const PageTable& other);
  PageTable& operator=(PageTable other) {
    std::swap(pool_, other.pool_), std::swap(kind_, other.kind_), std::swap(pages_, other.pages_),
        std::swap(most_, other.most_), std::swap(first_, other.first_), std::swap(end_, other.end_),
        std::swap(cells_, other.cells_);
    return *this;
  }
  ~PageTable() { keep(0); }

  // By cell / 16; what is out of reach means nothing. The address stays until this is assigned to.
  const int32_t* data() const { return pages_.data(); }
  // Bytes that prepare() would take for cells up to `end`: from an empty pool, and of new memory,
  // if its pool takes what nobody holds first.
  uint64_t bytes_to(int end) const;
  uint64_t new_bytes_to(int end) const;

  // Before tokens take cells [from, end): their pages, no longer shared, and no longer those far
  // out of their reach. Throws Error(memory) when the pool is exhausted.
  void prepare(int from, int end);
  // Gives back what the token of `cell` and those behind it do not see.
  void forget_before(int cell);
  // Whether everything is there that the token of `cell` sees, and that it sees nothing newer.
  bool reaches(int cell) const;
  // The pages held, by cell / 16, from the first one on. Of a recurrent state there is one.
  std::span<const int32_t> held() const {
    return std::span(pages_).subspan(size_t(first_), size_t(end_ - first_));
  }
  int first() const { return first_; }
  // Its page n, or kNoPage.
  int32_t page(int n) const { return n < first_ || n >= end_ ? kNoPage : pages_[size_t(n)]; }
  int first_for(int cell) const;  // the first page that the token of `cell` sees
  bool recurrent() const { return kind_.recurrent; }
  // Of an empty table: takes the pages from `first` on that `cells` cells have, for bytes that
  // somebody kept. Throws Error(memory) when the pool is exhausted.
  void take(int first, int cells);
  // Shares these whole pages, from `first` on, instead of what it has.
  void adopt(int first, std::span<const int32_t> pages);
  // Shares this page instead of its page n, which holds the same.
  void share(int n, int32_t page);
  // Gives back what only cells from `cells` on need.
  void keep(int cells);

 private:
  int pages_for(int cells) const {
    return kind_.recurrent ? (cells > 0) : (cells + kPage - 1) / kPage;
  }
  int64_t pages_to(int end) const;

  KvPool* pool_;
  StateLayout::Pool kind_;
  std::vector<int32_t> pages_;
  int64_t most_;
  int first_ = 0, end_ = 0;  // pages held
  int cells_ = 0;            // that were taken
};

}  // namespace chaski
