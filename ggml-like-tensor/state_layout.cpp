#include "ggml-like-tensor/state_layout.h"

#include <algorithm>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"

namespace chaski {

namespace {

constexpr size_t kBlockAlign = 64;

// The values of --kv without blocks, such as "f32, f16 or f8".
std::string formats_without_blocks() {
  std::vector<std::string> names;
  for (const KvType& type : kKvTypes)
    if (info(type.format).block == 1) names.push_back(type.name);
  return one_of(names);
}

}  // namespace

int StateLayout::pool_of(bool recurrent, int window, bool chunked) {
  const auto known = std::find_if(pools.begin(), pools.end(), [&](const Pool& p) {
    return p.recurrent == recurrent && p.window == window && p.chunked == chunked;
  });
  const int pool = int(known - pools.begin());
  if (known == pools.end()) pools.push_back({recurrent, window, chunked, 0});
  return pool;
}

StateLayout::StateLayout(std::span<const State> states, Format format, bool by_position)
    : paged(states.size()), recurrent(states.size()) {
  for (size_t i = 0; i < states.size(); ++i) {
    paged[i].pool = recurrent[i].pool = -1;
    if (const auto* s = std::get_if<Paged>(&states[i])) {
      const KvLayout layout{format, s->heads, s->k_dim, s->v_dim, by_position, s->v_inside_k};
      // The values are a part of each block of channels that is rotated together.
      if (layout.v_inside_k && layout.blocks() && s->v_dim % 32 != 0)
        fail(Exit::usage,
             "--kv is {}, expected {}: this model's values are {} channels of its keys, and not a "
             "multiple of 32",
             info(format).name, formats_without_blocks(), s->v_dim);
      const int pool = pool_of(false, s->window, s->chunked);
      size_t& page_bytes = pools[size_t(pool)].page_bytes;
      paged[i] = {layout, pool, kPageGroup * page_bytes, 0, nullptr};
      page_bytes += layout.page_bytes();
    } else {
      const auto bytes = size_t(std::get<Recurrent>(states[i]).bytes);
      const int pool = pool_of(true, 0);
      size_t& page_bytes = pools[size_t(pool)].page_bytes;
      recurrent[i] = {pool, bytes, page_bytes, 0, nullptr};
      page_bytes += (bytes + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
    }
  }
  for (KvView& s : paged)
    if (s.pool >= 0) s.group_bytes = kPageGroup * pools[size_t(s.pool)].page_bytes;
  for (RecurrentView& s : recurrent)
    if (s.pool >= 0) s.page_bytes = pools[size_t(s.pool)].page_bytes;
}

void StateLayout::place(std::span<std::byte* const> addresses) {
  for (KvView& s : paged)
    if (s.pool >= 0) s.base = addresses[size_t(s.pool)];
  for (RecurrentView& s : recurrent)
    if (s.pool >= 0) s.base = addresses[size_t(s.pool)];
}

size_t StateLayout::page_bytes() const {
  size_t sum = 0;
  for (const Pool& p : pools) sum += p.page_bytes;
  return sum;
}

}  // namespace chaski
