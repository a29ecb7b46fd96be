#include "engine/pages/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/pages/page_table.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

namespace {

// "; --kv q8 or q4_0 would fit": of the smaller formats those with which `bytes` more would fit.
// Recurrent states have no other format.
std::string smaller_formats(const KvCache& kv, uint64_t bytes, uint64_t have) {
  const auto& pools = kv.states.pools;
  if (pools.empty() || std::ranges::any_of(pools, &StateLayout::Pool::recurrent)) return "";
  const KvLayout& now = kv.states.paged[0].layout;
  const bool no_blocks = now.v_inside_k && now.v_dim % 32 != 0;
  uint64_t taken = 0;
  for (const KvPool& pool : kv.pools) taken += pool.bytes();
  std::string names;
  for (const Format smaller : {Format::f16, Format::q8, Format::q4_0}) {
    const double part = info(smaller).bits() / info(now.format).bits();
    if (part < 1 && part * double(taken + bytes) <= double(taken + have - have / 16) &&
        !(no_blocks && info(smaller).block > 1))
      names += fmt::format("{}{}", names.empty() ? "; --kv " : " or ", info(smaller).name);
  }
  return names.empty() ? "" : names + " would fit";
}

[[noreturn]] void refuse(std::string_view what, uint64_t bytes, uint64_t have, const KvCache& kv) {
  fail(Exit::memory, "{} needs {} more memory, but only {} are available{}", what, size_text(bytes),
       size_text(have), smaller_formats(kv, bytes, have));
}

}  // namespace

void KvCache::expect_memory(const std::function<uint64_t()>& need,
                            const std::function<std::string()>& what) {
  uint64_t bytes = need();
  if (bytes == 0) return;
  const auto have = usable_pages();
  if (!have || bytes <= *have) return;
  for (KvPool& pool : pools) pool.keep_within_now();
  bytes = need();
  if (bytes > *have) refuse(what(), bytes, *have, *this);
}

void KvCache::expect_memory_for(int cells, int pass, std::string_view what) const {
  const std::vector<int64_t> pages = pages_of_session(states.pools, cells, pass);
  uint64_t bytes = 0;
  for (size_t i = 0; i < pools.size(); ++i)  // with recurrent states, at least the last one
    bytes += pools[i].bytes_to_hold(states.pools[i].recurrent ? 1 : pages[i]);
  if (bytes == 0) return;
  const auto have = usable_pages();
  if (have && bytes > *have) refuse(what, bytes, *have, *this);
}

}  // namespace chaski
