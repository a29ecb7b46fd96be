#include "ggml-like-tensor/ops/sparse_attention.h"

namespace chaski {

void SparseAttention::gather(const KvView& from, int head, const int32_t* table,
                             const int32_t* cells, int64_t n, std::byte* to) {
  const KvLayout& l = from.layout;
  KvFormats::with(l.format, [&]<class F>(F) {
    const int tiles = l.k_cols() / F::kBlock;
    const auto tiles_of = [](std::byte* page) { return reinterpret_cast<typename F::Tile*>(page); };
    // Consecutive cells with one source page and one target page are copied together, tile by tile.
    for (int64_t i = 0, end; i < n; i = end) {
      const int32_t page = cells[i] / kPage;
      for (end = i + 1; end < n && end % kPage && cells[end] / kPage == page;) ++end;
      const auto* source = tiles_of(from.keys(head, table[page]));
      auto* target = tiles_of(to + size_t(i / kPage) * l.k_bytes());
      for (int tile = 0; tile < tiles; ++tile)
        for (int64_t k = i; k < end; ++k)
          F::put(F::get(source[tile], cells[k] % kPage), int(k % kPage), target[tile]);
    }
  });
}

}  // namespace chaski
