// The run-time table over the formats.
#include "quant/format.h"

#include <cstring>

#include "quant/formats.h"

namespace chaski {

namespace {

const std::array<FormatInfo, kFormatCount> kTable = [] {
  std::array<FormatInfo, kFormatCount> table{};
  Formats::each([&]<class F>(F) {
    table[size_t(F::kFormat)] = {F::kFormat, F::kName, F::kBlock, sizeof(typename F::Block), sizeof(typename F::Tile), F::kGguf};
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

void pack_strip(Format f, const std::byte* rows, size_t row_stride, int n_rows, int64_t cols, std::byte* strip) {
  std::memset(strip, 0, strip_bytes(f, cols));
  Formats::with(f, [&]<class F>(F) {
    auto* tiles = reinterpret_cast<typename F::Tile*>(strip);
    for (int r = 0; r < n_rows; ++r)
      for (int64_t b = 0; b < cols / F::kBlock; ++b)
        F::put(load_block<typename F::Block>(rows + r * row_stride + b * sizeof(typename F::Block)), r, tiles[b]);
  });
}

void unpack_row(Format f, const std::byte* strip, int r, int64_t cols, std::byte* row) {
  Formats::with(f, [&]<class F>(F) {
    auto* tiles = reinterpret_cast<const typename F::Tile*>(strip);
    for (int64_t b = 0; b < cols / F::kBlock; ++b) {
      const auto block = F::get(tiles[b], r);
      std::memcpy(row + b * sizeof block, &block, sizeof block);
    }
  });
}

void decode_row(Format f, const std::byte* strip, int r, int64_t cols, float* out) {
  Formats::with(f, [&]<class F>(F) {
    auto* tiles = reinterpret_cast<const typename F::Tile*>(strip);
    for (int64_t b = 0; b < cols / F::kBlock; ++b) {
      const auto block = F::get(tiles[b], r);
      for (int i = 0; i < F::kBlock; ++i) out[b * F::kBlock + i] = F::at(block, i);
    }
  });
}

void decode_plain_row(Format f, const std::byte* row, int64_t cols, float* out) {
  Formats::with(f, [&]<class F>(F) {
    for (int64_t b = 0; b < cols / F::kBlock; ++b) {
      const auto block = load_block<typename F::Block>(row + b * sizeof(typename F::Block));
      for (int i = 0; i < F::kBlock; ++i) out[b * F::kBlock + i] = F::at(block, i);
    }
  });
}

}  // namespace chaski
