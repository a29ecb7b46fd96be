// The page table of a sequence in one pool of states (state_layout.h): a page for each 16 cells,
// from the first page that attention still reads. A recurrent state has a single page. Copies of a
// table share its pages, which are copied on write. Only the thread that makes the passes of the
// engine uses a table.
#pragma once
#include <span>
#include <vector>

#include "engine/pages/kv_pool.h"
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

// A sliding window keeps this many cells more than it needs, so that a session can be rewound by as
// many tokens.
constexpr int kGoBack = 1024;
// Recurrent states cannot be rewound, so a session keeps this many snapshots of them (session.cpp).
constexpr int kSnapshots = 4;
// The prefix index has a snapshot at each multiple of kStateStep cells, and at the last whole page
// of a prompt of at least kStateTail new tokens. It also has one where a session ended or left its
// text. A batch is divided only into parts of at least kStateTail cells; the last part of a prompt
// may be shorter.
constexpr int kStateStep = 256, kStateTail = 64;

// The most pages of each pool that a session with this context and batches of `pass` tokens needs.
std::vector<int64_t> pages_of_session(std::span<const StateLayout::Pool> pools, int context,
                                      int pass);

class PageTable {
 public:
  // The table never holds more than `most` pages.
  PageTable(KvPool& pool, const StateLayout::Pool& kind, int context, int64_t most);
  PageTable(const PageTable& other);
  PageTable& operator=(PageTable other) {
    std::swap(pool_, other.pool_), std::swap(kind_, other.kind_), std::swap(pages_, other.pages_),
        std::swap(most_, other.most_), std::swap(first_, other.first_), std::swap(end_, other.end_),
        std::swap(cells_, other.cells_);
    return *this;
  }
  ~PageTable() { keep(0); }

  // Page numbers by cell / 16. Entries that are not held are undefined. The address changes only
  // when this is assigned to.
  const int32_t* data() const { return pages_.data(); }
  // The number of pages that prepare(from, end) takes at most.
  int64_t pages_to(int from, int end) const;

  // Call before cells [from, end) are written. Takes their pages, copies shared ones, and releases
  // pages far before the window. Throws Error(memory) if the pool is exhausted.
  void prepare(int from, int end);
  // Releases the pages that the tokens from `cell` on do not attend to.
  void drop_before(int cell);
  // Whether the table can continue at `cell`: it holds all cells that this token attends to, and a
  // recurrent state is exactly at `cell`.
  bool reaches(int cell) const;
  // The pages held, by cell / 16, from first() on. A recurrent state has one.
  std::span<const int32_t> held() const {
    return std::span(pages_).subspan(size_t(first_), size_t(end_ - first_));
  }
  int first() const { return first_; }
  // Page n, or kNoPage if it is not held.
  int32_t page(int n) const { return n < first_ || n >= end_ ? kNoPage : pages_[size_t(n)]; }
  int first_for(int cell) const;  // the first page that the token of `cell` attends to
  bool recurrent() const { return kind_.recurrent; }
  // The page of a recurrent state if that is exactly at `cell`, otherwise kNoPage.
  int32_t state_at(int cell) const { return cells_ == cell && end_ > 0 ? pages_[0] : kNoPage; }
  // For an empty table, before it is filled from a file: takes the pages of `cells` cells, from
  // page `first` on. Throws Error(memory) if the pool is exhausted.
  void take(int first, int cells);
  // Replaces all pages by these shared ones, which begin with page `first`.
  void adopt(int first, std::span<const int32_t> pages);
  // Replaces a recurrent state by this shared page, which has the state at `cell`.
  void adopt_state(int32_t page, int cell);
  // Replaces page n by this shared page, which has the same contents.
  void share(int n, int32_t page);
  // Keeps `cells` cells and releases the pages after them.
  void keep(int cells);

 private:
  int pages_for(int cells) const {
    return kind_.recurrent ? (cells > 0) : (cells + kPage - 1) / kPage;
  }
  // The first page that is written with `cell`.
  int first_written(int cell) const { return kind_.recurrent ? 0 : cell / kPage; }

  KvPool* pool_;
  StateLayout::Pool kind_;
  std::vector<int32_t> pages_;
  int64_t most_;
  int first_ = 0, end_ = 0;  // holds pages [first_, end_)
  int cells_ = 0;            // prepared so far
};

}  // namespace chaski
