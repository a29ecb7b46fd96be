#include "engine/pages/kv_cache.h"

#include <fmt/format.h>

#include "engine/pages/page_table.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

namespace {

// "; --kv q8 or q4_0 takes less memory" for f16; empty for the smallest format.
std::string smaller_formats(const StateLayout& states) {
  if (states.paged.empty()) return "";
  const KvLayout& now = states.paged[0].layout;
  const bool no_blocks = now.v_inside_k && now.v_dim % 32 != 0;
  std::string names;
  for (const Format smaller : {Format::f16, Format::q8, Format::q4_0})
    if (info(smaller).bits() < info(now.format).bits() && !(no_blocks && info(smaller).block > 1))
      names += fmt::format("{}{}", names.empty() ? "; --kv " : " or ", info(smaller).name);
  return names.empty() ? "" : names + " takes less memory";
}

[[noreturn]] void refuse(std::string_view what, uint64_t bytes, uint64_t have,
                         const StateLayout& states) {
  fail(Exit::memory, "{} needs {} more memory, but only {} are available{}", what, size_text(bytes),
       size_text(have), smaller_formats(states));
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
  if (bytes > *have) refuse(what(), bytes, *have, states);
}

void KvCache::expect_memory_for(int cells, int pass, std::string_view what) const {
  const std::vector<int64_t> pages = pages_of_session(states.pools, cells, pass);
  uint64_t bytes = 0;
  for (size_t i = 0; i < pools.size(); ++i) bytes += pools[i].bytes_to_hold(pages[i]);
  if (bytes == 0) return;
  const auto have = usable_pages();
  if (have && bytes > *have) refuse(what, bytes, *have, states);
}

}  // namespace chaski
