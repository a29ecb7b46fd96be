// The run-time table over the formats.
#include "quant/format.h"

#include <cstring>

#include "quant/formats.h"

namespace chaski {

namespace {

const std::array<FormatInfo, kFormatCount> kTable = [] {
  std::array<FormatInfo, kFormatCount> table{};
  Formats::each([&]<class F>(F) {
    table[size_t(F::kFormat)] = {F::kFormat,      F::kName,
                                 F::kBlock,       sizeof(typename F::Block),
                                 kHeaderBytes<F>, sizeof(typename F::Tile),
                                 F::kGguf,        kTileLayout<F>,
                                 kOnDevice<F>,    F::kFloat};
  });
  return table;
}();

// Blocks in files are not aligned.
template <class Block>
Block load_block(const std::byte* from) {
  Block block;
  std::memcpy(&block, from, sizeof block);
  return block;
}

}  // namespace

const FormatInfo& info(Format format) { return kTable[size_t(format)]; }

std::optional<Format> format_named(std::string_view name) {
  for (const FormatInfo& f : kTable)
    if (f.name == name) return f.format;
  return std::nullopt;
}

std::optional<Format> format_of_gguf(int gguf_type) {
  for (const FormatInfo& f : kTable)
    if (gguf_type >= 0 && f.gguf_type == gguf_type) return f.format;
  return std::nullopt;
}

void pack_strip(Format f, const std::byte* rows, size_t row_stride, int n_rows, int64_t cols,
                std::byte* strip) {
  std::memset(strip, 0, strip_bytes(f, cols));
  Formats::with(f, [&]<class F>(F) {
    constexpr size_t kHeader = kHeaderBytes<F>;
    auto* tiles = const_cast<typename F::Tile*>(StripOf<F>(strip).tiles());
    for (int r = 0; r < n_rows; ++r) {
      const std::byte* row = rows + size_t(r) * row_stride;
      std::memcpy(strip + size_t(r) * kHeader, row, kHeader);
      for (int64_t b = 0; b < cols / F::kBlock; ++b)
        F::put(load_block<typename F::Block>(row + kHeader + size_t(b) * sizeof(typename F::Block)),
               r, tiles[b]);
    }
  });
}

void unpack_row(Format f, const std::byte* strip, int r, int64_t cols, std::byte* row) {
  Formats::with(f, [&]<class F>(F) {
    constexpr size_t kHeader = kHeaderBytes<F>;
    std::memcpy(row, strip + size_t(r) * kHeader, kHeader);
    for (int64_t b = 0; b < cols / F::kBlock; ++b) {
      const auto block = F::get(StripOf<F>(strip).tiles()[b], r);
      std::memcpy(row + kHeader + size_t(b) * sizeof block, &block, sizeof block);
    }
  });
}

void decode_row(Format f, const std::byte* strip, int r, int64_t cols, float* out) {
  Formats::with(f, [&]<class F>(F) {
    const StripOf<F> s(strip);
    for (int64_t b = 0; b < cols / F::kBlock; ++b) {
      const auto block = F::get(s.tiles()[b], r);
      for (int i = 0; i < F::kBlock; ++i) out[b * F::kBlock + i] = s.row(r).at(block, i);
    }
  });
}

void decode_plain_row(Format f, const std::byte* row, int64_t cols, float* out) {
  Formats::with(f, [&]<class F>(F) {
    for (int64_t b = 0; b < cols / F::kBlock; ++b) {
      const auto block = load_block<typename F::Block>(row + kHeaderBytes<F> +
                                                       size_t(b) * sizeof(typename F::Block));
      for (int i = 0; i < F::kBlock; ++i) out[b * F::kBlock + i] = RowOf<F>{row}.at(block, i);
    }
  });
}

}  // namespace chaski
