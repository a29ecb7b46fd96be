// Where the states of a model are stored. States of equal windows share a pool, because they hold
// the same positions. A page of the pool is 16 positions of each of these states, and each sequence
// has one table of its pages. Recurrent states share a pool too: there a page is all of these
// states, and a sequence's table is one page.
#pragma once
#include <span>
#include <vector>

#include "ggml-like-tensor/kv_layout.h"
#include "ggml-like-tensor/state.h"

namespace chaski {

// One recurrent state.
struct RecurrentView {
  int pool = 0;
  size_t bytes = 0, offset = 0, page_bytes = 0;  // its size, its offset, a page's size
  std::byte* base = nullptr;                     // address of the pool

  [[gnu::always_inline]] std::byte* block(int32_t page) const {
    return base + size_t(page) * page_bytes + offset;
  }
};

struct StateLayout {
  struct Pool {
    bool recurrent = false;
    int window = 0;        // of pools with pages of positions
    bool chunked = false;  // its windows are (state.h)
    size_t page_bytes = 0;
    // The first cell that the token of `cell` sees.
    int64_t first_seen(int64_t cell) const {
      return Paged{.window = window, .chunked = chunked}.first_seen(cell);
    }
  };
  std::vector<Pool> pools;
  // By StateId. An entry is undefined if the state is of the other kind.
  std::vector<KvView> paged;
  std::vector<RecurrentView> recurrent;

  StateLayout() = default;
  // Keys and values in `format`. Throws Error(usage) if that is a format of blocks and the values
  // of a state are inside its keys. A state that is kept elsewhere takes no memory, but its pool
  // keeps its number.
  StateLayout(std::span<const State> states, Format format, bool by_position);

  // Sets the addresses of the pools.
  void place(std::span<std::byte* const> addresses);
  // The sum of the page sizes of all pools.
  size_t page_bytes() const;

  // Calls copy(to, from, bytes) for everything in page `from` of a pool.
  template <class Copy>
  void copy_page(int pool, int32_t from, int32_t to, Copy copy) const {
    for (const KvView& s : paged)
      for (int head = 0; s.pool == pool && head < s.layout.heads; ++head) {
        copy(s.keys(head, to), s.keys(head, from), s.layout.k_bytes());
        copy(s.values(head, to), s.values(head, from), s.layout.v_bytes());
      }
    for (const RecurrentView& s : recurrent)
      if (s.pool == pool && s.bytes > 0) copy(s.block(to), s.block(from), s.bytes);
  }

 private:
  int pool_of(bool recurrent, int window, bool chunked = false);
};

}  // namespace chaski
