// Where the states of a model lie. States of equal window share a pool, since they hold the same
// positions: a page of the pool is 16 positions of each of them, and one table a sequence says
// which pages those are. Recurrent states share a pool as well, in which a page is all of them, and
// a sequence's table that one page.
#pragma once
#include <span>
#include <vector>

#include "ggml-like-tensor/kv_layout.h"
#include "ggml-like-tensor/state.h"

namespace chaski {

// One recurrent state.
struct RecurrentView {
  int pool = 0;
  size_t bytes = 0, offset = 0, page_bytes = 0;  // its own, where in a page, a page's
  std::byte* base = nullptr;                     // of the pool

  [[gnu::always_inline]] std::byte* block(int32_t page) const {
    return base + size_t(page) * page_bytes + offset;
  }
};

struct StateLayout {
  struct Pool {
    bool recurrent = false;
    int window = 0;  // of the others
    size_t page_bytes = 0;
  };
  std::vector<Pool> pools;
  // By StateId; what stands at the number of a state of the other kind means nothing.
  std::vector<KvView> paged;
  std::vector<RecurrentView> recurrent;

  StateLayout() = default;
  // Keys and values in `format`: Error(usage) if it is one of blocks and the values of a state are
  // inside its keys. A state that is kept elsewhere takes no room, but its pool has its
  // number.
  StateLayout(std::span<const State> states, Format format, bool by_position);

  // Sets the addresses of the pools.
  void place(std::span<std::byte* const> addresses);
  // Of a page of each pool.
  size_t page_bytes() const;

  // copy(to, from, bytes) of everything that page `from` of a pool holds.
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
  int pool_of(bool recurrent, int window);
};

}  // namespace chaski
