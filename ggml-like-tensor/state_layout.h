// Where the states of a model lie. States of equal window share a pool, since they hold the same
// positions: a page of the pool is 16 positions of each of them, and one table a sequence says
// which pages those are.
#pragma once
#include <span>
#include <vector>

#include "ggml-like-tensor/kv_layout.h"
#include "ggml-like-tensor/state.h"

namespace chaski {

struct StateLayout {
  struct Pool {
    int window = 0;
    size_t page_bytes = 0;
    // that a sequence of `context` positions needs
    int64_t pages(int context) const { return (int64_t(context) + kPage - 1) / kPage; }
  };
  std::vector<Pool> pools;
  std::vector<KvView> paged;  // by StateId

  StateLayout() = default;
  // Keys and values in `format`. A state without heads takes no room, but its pool has its number.
  StateLayout(std::span<const State> states, Format format, bool by_position);

  // Sets the addresses of the pools.
  void place(std::span<std::byte* const> addresses);
  // Of a page of each pool.
  size_t page_bytes() const;

  // copy(to, from, bytes) of everything that page `from` of a pool holds.
  template <class Copy>
  void copy_page(int pool, int32_t from, int32_t to, Copy copy) const {
    for (const KvView& s : paged) {
      if (s.pool != pool) continue;
      for (int head = 0; head < s.layout.heads; ++head) {
        copy(s.keys(head, to), s.keys(head, from), s.layout.k_bytes());
        copy(s.values(head, to), s.values(head, from), s.layout.v_bytes());
      }
    }
  }
};

}  // namespace chaski
