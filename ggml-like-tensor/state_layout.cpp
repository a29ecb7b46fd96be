#include "ggml-like-tensor/state_layout.h"

#include <algorithm>

namespace chaski {

StateLayout::StateLayout(std::span<const State> states, Format format, bool by_position) {
  for (const State& state : states) {
    const Paged& s = std::get<Paged>(state);
    const auto known = std::find_if(pools.begin(), pools.end(),
                                    [&](const Pool& p) { return p.window == s.window; });
    const int pool = int(known - pools.begin());
    if (known == pools.end()) pools.push_back({s.window, 0});
    const KvLayout layout{format, s.heads, s.k_dim, s.v_dim, by_position};
    size_t& page_bytes = pools[size_t(pool)].page_bytes;
    paged.push_back({layout, pool, kPageGroup * page_bytes});
    page_bytes += layout.page_bytes();
  }
  for (KvView& s : paged) s.group_bytes = kPageGroup * pools[size_t(s.pool)].page_bytes;
}

void StateLayout::place(std::span<std::byte* const> addresses) {
  for (KvView& s : paged) s.base = addresses[size_t(s.pool)];
}

size_t StateLayout::page_bytes() const {
  size_t sum = 0;
  for (const Pool& p : pools) sum += p.page_bytes;
  return sum;
}

}  // namespace chaski
