// The list of weight formats, and functions for a format that is chosen at run time. Each format's
// bytes and meaning are in its own header. Nothing in this folder knows tensors, files, threads or
// errors: its functions cannot fail.
//
// Two layouts of the same numbers:
//   row   one row after another, blocks in order: what GGUF files hold, and vectors.
//   tile  strips of 16 rows, blocks interleaved so that a SIMD lane is a row (design: "a lane is a
//         row"): what .quipu files and memory hold. A strip is cols / block tiles, one after the
//         other; missing rows of the last strip are zero. If unpacking a row's block would be
//         slow, the tile is larger than 16 blocks (IQ2, IQ3).
// A format may have a row header (q4: a scale). It comes before the blocks of a row; the 16 headers
// of a strip come before its tiles.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace chaski {

constexpr int kStrip = 16;  // rows of a tile

// How an encoder chooses a block's scales. `fast` takes the scale of the block's maximum, refits it
// once by least squares to the resulting codes, and ignores the columns' factors.
enum class Effort { search, fast };

// Ids are on disk: never renumber.
enum class Format : uint32_t {
  f32 = 0,
  f16 = 1,
  bf16 = 2,
  q8 = 3,  // 8 bit, blocks of 32, f16 scale: GGUF Q8_0
  q4_0 = 4,
  q8f = 5,  // q8 with an f32 scale: llama2.c
  q4_1 = 6,
  q5_0 = 7,
  q5_1 = 8,
  q2_k = 9,
  q3_k = 10,
  q4_k = 11,
  q5_k = 12,
  q6_k = 13,
  iq4_nl = 14,
  iq4_xs = 15,
  q4 = 16,   // 4.25 bit, blocks of 32, non-linear codebook, and a scale per row
  q4h = 17,  // 4.5 bit, the same with scales per 16
  f8 = 18,   // e4m3, no scale: keys and values, weights of a few folders
  tq1_0 = 19,
  tq2_0 = 20,
  mxfp4 = 21,
  nvfp4 = 22,
  iq3_s = 23,
  iq3_xxs = 24,
  iq2_s = 25,
  iq2_xs = 26,
  iq2_xxs = 27,
  iq1_s = 28,
  iq1_m = 29,
  nf4 = 30,
  fp4 = 31,
  f8s = 32,     // f8 under an f32 scale for 64 columns
  nvfp4s = 33,  // nvfp4 under an f32 scale for a row
  q3 = 34,      // 3.25 bit, blocks of 32, trellis codes, and a scale per row
  q2 = 35,      // 2.5 bit, the same
  q6 = 36,      // 6.25 bit, blocks of 32, and a scale per row
  q4t = 37,     // 4.25 bit, blocks of 32, trellis codes, and a scale per row
  q5 = 38,      // 5.25 bit, the same
};
constexpr int kFormatCount = 39;

// A list of formats that code can iterate over, or select from at run time.
template <class... F>
struct FormatList {
  static constexpr int kCount = sizeof...(F);
  template <class G>
  static constexpr bool has = (std::is_same_v<F, G> || ...);
  // Calls f(F{}) for every format, in order.
  template <class Fn>
  static void each(Fn&& fn) {
    (fn(F{}), ...);
  }
  // Calls f(F{}) for the format with this id, which must be in the list.
  template <class Fn>
  static void with(Format id, Fn&& fn) {
    ((F::kFormat == id ? (void)fn(F{}) : (void)0), ...);
  }
};

struct FormatInfo {
  Format format;
  std::string_view name;
  int block;               // columns a block spans: cols must be a multiple (1 for the float types)
  size_t row_block_bytes;  // bytes of one row's block in row layout
  size_t row_header_bytes;  // bytes before the blocks of a row
  size_t tile_bytes;        // bytes of 16 rows x block columns in tile layout
  int gguf_type;            // ggml type number, -1 if GGUF has none
  uint32_t tile_layout;     // version of the tile layout in files; 0 is the row layout
  bool on_device;           // whether there are CUDA kernels for it
  bool floating;            // multiplied in floats, by activations of f32; else in integers
  // per weight, without the row header
  double bits() const { return 8.0 * double(row_block_bytes) / block; }
};

const FormatInfo& info(Format format);
std::optional<Format> format_named(std::string_view name);
std::optional<Format> format_of_gguf(int gguf_type);

// Always inlined: a copy in an object with instruction-set flags could be linked elsewhere.
[[gnu::always_inline]] inline size_t row_bytes(Format f, int64_t cols) {
  return info(f).row_header_bytes + info(f).row_block_bytes * (cols / info(f).block);
}
[[gnu::always_inline]] inline size_t strip_bytes(Format f, int64_t cols) {
  return kStrip * info(f).row_header_bytes + info(f).tile_bytes * (cols / info(f).block);
}

// n_rows <= 16 rows in row layout, row_stride bytes apart -> one strip; the other lanes are zeroed.
// Lossless.
void pack_strip(Format f, const std::byte* rows, size_t row_stride, int n_rows, int64_t cols,
                std::byte* strip);
// The inverse: row r of a strip, in row layout.
void unpack_row(Format f, const std::byte* strip, int r, int64_t cols, std::byte* row);

// Exact values of row r of a strip / of a row in row layout.
void decode_row(Format f, const std::byte* strip, int r, int64_t cols, float* out);
void decode_plain_row(Format f, const std::byte* row, int64_t cols, float* out);

}  // namespace chaski
