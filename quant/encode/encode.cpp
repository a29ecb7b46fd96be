#include "quant/encode/encode.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "quant/formats.h"

namespace chaski {

namespace {

// Formats with a row header all do.
template <class F>
constexpr bool kWeighs = kHasHeader<F> || requires(const float* x, typename F::Block& block) {
  F::encode(x, x, Effort::search, block);
};

}  // namespace

bool can_encode(Format f) {
  bool can = false;
  Formats::with(f, [&]<class F>(F) { can = kEncodes<F>; });
  return can;
}

bool weighs_columns(Format f) {
  bool weighs = false;
  Formats::with(f, [&]<class F>(F) { weighs = kWeighs<F>; });
  return weighs;
}

std::vector<Format> encodable_formats() {
  std::vector<Format> out;
  Formats::each([&]<class F>(F) {
    if (kEncodes<F>) out.push_back(F::kFormat);
  });
  std::stable_sort(out.begin(), out.end(),
                   [](Format a, Format b) { return info(a).bits() < info(b).bits(); });
  return out;
}

void encode_strip(Format f, const float* rows, int64_t row_stride, int n_rows, int64_t cols,
                  std::byte* strip, const float* factors, Effort effort) {
  std::memset(strip, 0, strip_bytes(f, cols));
  const std::vector<float> equal(factors ? 0 : size_t(cols), 1.0f);
  if (!factors) factors = equal.data();
  Formats::with(f, [&]<class F>(F) {
    if constexpr (kEncodes<F>) {
      auto* tiles = const_cast<typename F::Tile*>(StripOf<F>(strip).tiles());
      for (int r = 0; r < n_rows; ++r) {
        const float* row = rows + r * row_stride;
        const auto encode_row = [&](const auto&... header) {
          for (int64_t b = 0; b < cols / F::kBlock; ++b) {
            typename F::Block block;
            const float *x = row + b * F::kBlock, *weights = factors + b * F::kBlock;
            if constexpr (kWeighs<F>)
              F::encode(header..., x, weights, effort, block);
            else
              F::encode(x, block);
            F::put(block, r, tiles[b]);
          }
        };
        if constexpr (kHasHeader<F>) {
          const auto header = F::header_of(row, cols);
          std::memcpy(strip + size_t(r) * sizeof header, &header, sizeof header);
          encode_row(header);
        } else {
          encode_row();
        }
      }
    }
  });
}

}  // namespace chaski
