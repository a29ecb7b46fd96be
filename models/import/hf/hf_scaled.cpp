#include "models/import/hf/hf_scaled.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "ggml-like-tensor/base/checked.h"
#include "ggml-like-tensor/base/error.h"
#include "models/import/affix.h"
#include "quant/formats.h"

namespace chaski {
namespace {

std::string shape_of_tensor(const SafeTensor& t) {
  return fmt::format("shape ({})", fmt::join(t.shape, ", "));
}

[[noreturn]] void refuse(const SafeTensor& t, std::string_view found, std::string_view expected) {
  fail(Exit::bad_file, "{}: tensor {} has {}, expected {}, {}", t.file, escaped(t.name), found,
       expected, kUnpackedInstead);
}

int64_t elements(const SafeTensor& t) {
  int64_t n = 1;
  for (int64_t d : t.shape) n *= d;
  return n;
}

void expect_dtype(const SafeTensor& t, std::string_view dtype) {
  if (t.dtype != dtype) refuse(t, "dtype " + t.dtype, dtype);
}
void expect_count(const SafeTensor& t, int64_t n) {
  if (elements(t) != n) refuse(t, shape_of_tensor(t), fmt::format("{} elements", n));
}

void expect_matrix(const SafeTensor& t) {
  if (t.shape.size() != 2) refuse(t, shape_of_tensor(t), "2 dimensions");
}
// The number of columns, or rows, that share a scale.
int64_t block_size(const Json& value, int multiple) {
  const int64_t n = value.integer();
  if (n < 1 || n > 1 << 20 || n % multiple != 0)
    value.wrong(
        fmt::format("a multiple of {}, at most {}, {}", multiple, 1 << 20, kUnpackedInstead));
  return n;
}

// An element of F32, F16 or BF16.
float number_at(const SafeTensor& t, int64_t i) {
  float x;
  decode_plain_row(*t.format, t.data + i * int64_t(row_bytes(*t.format, 1)), 1, &x);
  return x;
}
void expect_numbers(const SafeTensor& t) {
  if (!t.format || *t.format == Format::f8) refuse(t, "dtype " + t.dtype, "F32, F16 or BF16");
}

uint8_t byte_at(const SafeTensor& t, int64_t i) { return uint8_t(t.data[i]); }

// The tensors of a folder by name, with a mark for those that were used.
class Names {
 public:
  explicit Names(std::vector<SafeTensor>& all) : all_(all) {
    for (const SafeTensor& t : all) by_name_.emplace(t.name, &t);
  }
  // Null if there is none.
  const SafeTensor* find(const std::string& name) {
    const auto at = by_name_.find(name);
    if (at == by_name_.end()) return nullptr;
    used_.insert(name);
    return at->second;
  }
  const SafeTensor& need(const SafeTensor& partner, const std::string& name) {
    if (const SafeTensor* t = find(name)) return *t;
    fail(Exit::bad_file, "{}: tensor {} is missing, expected it together with {}, {}", partner.file,
         escaped(name), escaped(partner.name), kUnpackedInstead);
  }
  const std::vector<SafeTensor>& all() const { return all_; }
  void drop_used() {
    std::erase_if(all_, [&](const SafeTensor& t) { return used_.count(t.name) > 0; });
  }

 private:
  std::vector<SafeTensor>& all_;
  std::map<std::string, const SafeTensor*> by_name_;
  std::set<std::string> used_;
};

void expect_columns(const SafeTensor& t, int64_t cols, int block) {
  if (cols % block != 0)
    refuse(t, fmt::format("{} columns", cols), fmt::format("a multiple of {}", block));
}

template <class Block>
void put_block(const Block& block, int64_t i, std::byte* row) {
  std::memcpy(row + i * int64_t(sizeof block), &block, sizeof block);
}

// --- bitsandbytes ---

// The scale of each block of codes. Scales may be quantized too ("nested"): the code selects an
// entry of a table, which is multiplied by the scale of its outer block and moved by an offset.
class Absmax {
 public:
  Absmax(Names& names, const SafeTensor& w, const Json& state, int64_t blocks)
      : scales_(names.need(w, w.name + ".absmax")) {
    expect_count(scales_, blocks);
    const bool nested = state.has("nested_blocksize");
    expect_dtype(scales_, nested ? "U8" : "F32");
    if (!nested) return;
    block_ = block_size(state["nested_blocksize"], 1);
    offset_ = static_cast<float>(state["nested_offset"].number());
    outer_ = names.need(w, w.name + ".nested_absmax");
    expect_dtype(outer_, "F32"), expect_count(outer_, (blocks + block_ - 1) / block_);
    table_ = names.need(w, w.name + ".nested_quant_map");
    expect_dtype(table_, "F32"), expect_count(table_, 256);
  }
  float at(int64_t i) const {
    if (block_ == 0) return number_at(scales_, i);
    return number_at(table_, byte_at(scales_, i)) * number_at(outer_, i / block_) + offset_;
  }

 private:
  SafeTensor scales_, outer_, table_;
  int64_t block_ = 0;  // 0: the scales are plain numbers
  float offset_ = 0;
};

template <class F>
void expect_codebook(const SafeTensor& map) {
  expect_dtype(map, "F32"), expect_count(map, 16);
  for (int i = 0; i < 16; ++i)
    if (number_at(map, i) != F::kCodebook[i])
      refuse(map, fmt::format("{} for code {}", number_at(map, i), i),
             fmt::format("{} as in {}", F::kCodebook[i], F::kName));
}

// Two codes a byte, the first in the upper half; all rows are packed as one sequence.
template <class F>
PackedTensor four_bits(Names& names, const SafeTensor& w, const SafeTensor& state_bytes) {
  const Json state =
      parse_json(fmt::format("{}: tensor {}", w.file, escaped(state_bytes.name)),
                 {reinterpret_cast<const char*>(state_bytes.data), size_t(elements(state_bytes))});
  const Json shape = state["shape"];
  if (!shape.is_array() || shape.size() != 2) shape.wrong("two integers");
  const int64_t rows = shape.at(0).integer(), cols = shape.at(1).integer();
  for (size_t i = 0; i < 2; ++i)
    if (shape.at(i).integer() < 1) shape.at(i).wrong("1 or more");
  expect_dtype(w, "U8");
  const auto bytes = Checked(uint64_t(rows)) * uint64_t(cols);
  if (!bytes.get() || *bytes.get() != 2 * uint64_t(elements(w)))
    refuse(w, fmt::format("{} bytes", elements(w)),
           fmt::format("the codes of {} x {}", rows, cols));
  expect_columns(w, cols, F::kBlock);
  const int64_t block = block_size(state["blocksize"], F::kBlock);
  expect_codebook<F>(names.need(w, w.name + ".quant_map"));
  const Absmax absmax(names, w, state, (rows * cols + block - 1) / block);
  return {w.name, w.file, F::kFormat, rows, cols, [=](int64_t row, std::byte* dst) {
            for (int64_t b = 0; b < cols / F::kBlock; ++b) {
              const int64_t first = row * cols + b * F::kBlock;
              typename F::Block out{absmax.at(first / block), {}};
              for (int i = 0; i < F::kBlock; ++i) {
                const int pair = byte_at(w, (first + i) / 2);
                F::set_nibble(out, i, (first + i) % 2 == 0 ? pair >> 4 : pair & 15);
              }
              put_block(out, b, dst);
            }
          }};
}

// Rows of 8-bit integers, and their factors.
PackedTensor eight_bits(const SafeTensor& w, std::function<float(int64_t row, int64_t col)> scale) {
  expect_dtype(w, "I8");
  expect_matrix(w);
  const int64_t rows = w.shape[0], cols = w.shape[1];
  expect_columns(w, cols, Q8F::kBlock);
  return {w.name, w.file, Format::q8f, rows, cols, [=](int64_t row, std::byte* dst) {
            for (int64_t b = 0; b < cols / Q8F::kBlock; ++b) {
              Q8F::Block out{scale(row, b * Q8F::kBlock), {}};
              std::memcpy(out.q, w.data + row * cols + b * Q8F::kBlock, Q8F::kBlock);
              put_block(out, b, dst);
            }
          }};
}

PackedTensor llm_int8(Names& names, const SafeTensor& w, const SafeTensor& scb) {
  expect_matrix(w), expect_dtype(scb, "F32"), expect_count(scb, w.shape[0]);
  std::string_view stem = w.name;
  drop_suffix(stem, ".weight");
  if (const SafeTensor* kind = names.find(std::string(stem) + ".weight_format");
      kind && (kind->dtype != "U8" || byte_at(*kind, 0) != 0))
    refuse(*kind, fmt::format("kind {}", byte_at(*kind, 0)), "0 (row-major)");
  // like bitsandbytes: multiply by 1 / 127 in float
  return eight_bits(w, [scb](int64_t row, int64_t) { return number_at(scb, row) * (1.0f / 127); });
}

// --- e4m3, integers and NVFP4 under scales ---

// A scale for each block of `rows` x `cols` elements of a matrix.
struct ScaleGrid {
  SafeTensor scales;
  int64_t rows, cols, columns;
  float at(int64_t row, int64_t col) const {
    return number_at(scales, row / rows * columns + col / cols);
  }
};

// The scales are one for all, one a row, one for groups of each row, or one for each block of the
// size in config.json.
ScaleGrid grid_of(const SafeTensor& scales, const SafeTensor& w, const Json& config, int block) {
  expect_numbers(scales);
  expect_matrix(w);
  const int64_t rows = w.shape[0], cols = w.shape[1];
  if (elements(scales) == 1) return {scales, rows, cols, 1};
  if (scales.shape.size() > 2) refuse(scales, shape_of_tensor(scales), "at most 2 dimensions");
  const int64_t down = scales.shape[0], across = scales.shape.size() == 2 ? scales.shape[1] : 1;
  const Json blocks = config["weight_block_size"];
  ScaleGrid grid{scales, 1, (cols + across - 1) / across, across};
  if (down != rows) {
    grid.rows = blocks.present() ? block_size(blocks.at(0), 1) : 128;
    grid.cols = blocks.present() ? block_size(blocks.at(1), block) : 128;
  }
  if (down != (rows + grid.rows - 1) / grid.rows || across != (cols + grid.cols - 1) / grid.cols)
    refuse(
        scales, shape_of_tensor(scales),
        fmt::format("one scale, one for each of {} rows or for each group of a row, or ({}, {}) "
                    "for blocks",
                    rows, (rows + grid.rows - 1) / grid.rows, (cols + grid.cols - 1) / grid.cols));
  if (across > 1 && grid.cols % block != 0)  // groups of columns
    refuse(scales, fmt::format("a scale for {} columns", grid.cols),
           fmt::format("a scale for a multiple of {} columns", block));
  return grid;
}

PackedTensor e4m3(const SafeTensor& w, const ScaleGrid& grid) {
  const int64_t rows = w.shape[0], cols = w.shape[1];
  expect_columns(w, cols, F8S::kBlock);
  return {w.name, w.file, Format::f8s, rows, cols, [=](int64_t row, std::byte* dst) {
            for (int64_t b = 0; b < cols / F8S::kBlock; ++b) {
              F8S::Block out{grid.at(row, b * F8S::kBlock), {}};
              std::memcpy(out.q, w.data + row * cols + b * F8S::kBlock, F8S::kBlock);
              put_block(out, b, dst);
            }
          }};
}

// Integers of 4 or 8 bits with an offset of half their range, the first in a word's lowest bits.
// f16 represents the bfloat16 scales exactly, unless they are smaller than in any real model.
PackedTensor packed_integers(Names& names, const std::string& name, const SafeTensor& w,
                             const Json& config) {
  expect_dtype(w, "I32"), expect_matrix(w);
  const SafeTensor& shape = names.need(w, name + "_shape");
  expect_dtype(shape, "I64"), expect_count(shape, 2);
  int64_t rows_cols[2];
  std::memcpy(rows_cols, shape.data, sizeof rows_cols);
  const auto [rows, cols] = rows_cols;
  const int bits = cols == 8 * w.shape[1] ? 4 : 8;
  if (rows != w.shape[0] || cols != w.shape[1] * (32 / bits))
    refuse(w, shape_of_tensor(w), fmt::format("the codes of {} x {} in 4 or 8 bits", rows, cols));
  expect_columns(w, cols, 32);
  SafeTensor unpacked = w;
  unpacked.shape = {rows, cols};
  const ScaleGrid grid = grid_of(names.need(w, name + "_scale"), unpacked, config, 32);
  for (int64_t i = 0; i < elements(grid.scales); ++i)
    if (const float d = number_at(grid.scales, i); f32_of_f16(f16_of_f32(d)) != d)
      refuse(grid.scales, fmt::format("{}", d), "numbers that f16 represents exactly");
  return {name,
          w.file,
          bits == 4 ? Format::q4_0 : Format::q8,
          rows,
          cols,
          [=, words = w.shape[1], data = w.data, columns = cols](int64_t row, std::byte* dst) {
            const std::byte* codes = data + 4 * row * words;
            for (int64_t b = 0; b < columns / 32; ++b) {
              const uint16_t d = f16_of_f32(grid.at(row, 32 * b));
              if (bits == 8) {
                Q8::Block out{d, {}};
                for (int i = 0; i < 32; ++i) out.q[i] = int8_t(int(codes[32 * b + i]) - 128);
                put_block(out, b, dst);
              } else {
                Q4_0::Block out{d, {}};
                for (int i = 0; i < 32; ++i) {
                  const int code = int(codes[16 * b + i / 2]) >> 4 * (i % 2) & 15;
                  out.q[i % 16] |= uint8_t(code << (i < 16 ? 0 : 4));
                }
                put_block(out, b, dst);
              }
            }
          }};
}

// Two codes a byte, the first in the lower half; an e4m3 scale for 16 columns; a scale for the
// tensor.
PackedTensor nvfp4(const std::string& name, const SafeTensor& w, const SafeTensor& scales,
                   float whole) {
  expect_dtype(w, "U8"), expect_dtype(scales, "F8_E4M3");
  expect_matrix(w);
  const int64_t rows = w.shape[0], cols = 2 * w.shape[1];
  expect_columns(w, cols, NVFP4S::kBlock);
  if (scales.shape != std::vector<int64_t>{rows, cols / 16})
    refuse(scales, shape_of_tensor(scales), fmt::format("({}, {})", rows, cols / 16));
  return {name, w.file, Format::nvfp4s, rows, cols, [=](int64_t row, std::byte* dst) {
            std::memcpy(dst, &whole, sizeof whole);
            for (int64_t b = 0; b < cols / NVFP4S::kBlock; ++b) {
              NVFP4S::Block out{};
              std::memcpy(out.scale, scales.data + row * (cols / 16) + 4 * b, 4);
              for (int i = 0; i < NVFP4S::kBlock; ++i) {
                const int pair = byte_at(w, (row * cols + b * NVFP4S::kBlock + i) / 2);
                out.q[8 * (i / 16) + i % 8] |=
                    uint8_t((pair >> 4 * (i % 2) & 15) << (i % 16 < 8 ? 0 : 4));
              }
              put_block(out, b, dst + sizeof whole);
            }
          }};
}

// Experts (experts, outputs, blocks, 16): two codes a byte, the first in the lower half; and a
// scale for each block.
PackedTensor mxfp4_experts(Names& names, const std::string& name, const SafeTensor& w) {
  const SafeTensor& scales = names.need(w, name + "_scales");
  expect_dtype(w, "U8"), expect_dtype(scales, "U8");
  constexpr int64_t kBytes = MXFP4::kBlock / 2;
  if (w.shape.size() != 4 || w.shape[3] != kBytes)
    refuse(w, shape_of_tensor(w), fmt::format("(experts, outputs, blocks, {})", kBytes));
  const int64_t rows = w.shape[0] * w.shape[1], blocks = w.shape[2];
  if (scales.shape != std::vector<int64_t>(w.shape.begin(), w.shape.end() - 1))
    refuse(scales, shape_of_tensor(scales),
           fmt::format("({}, {}, {})", w.shape[0], w.shape[1], w.shape[2]));
  return {
      name, w.file, Format::mxfp4, rows, blocks * MXFP4::kBlock, [=](int64_t row, std::byte* dst) {
        for (int64_t b = 0; b < blocks; ++b) {
          const int64_t block = row * blocks + b;
          MXFP4::Block out{byte_at(scales, block), {}};
          for (int i = 0; i < MXFP4::kBlock; ++i) {
            const int pair = byte_at(w, block * kBytes + i / 2);
            out.q[i % kBytes] |= uint8_t((pair >> 4 * (i % 2) & 15) << (i < kBytes ? 0 : 4));
          }
          put_block(out, b, dst);
        }
      }};
}

float one_number(const SafeTensor& t) {
  expect_numbers(t), expect_count(t, 1);
  return number_at(t, 0);
}

// Tensors about rounding activations, keys and values, which chaski does not do.
bool is_of_activations(std::string_view name) {
  constexpr std::array kEnds = {
      ".input_scale", ".input_global_scale", ".output_scale", ".k_scale", ".v_scale",
      ".q_scale",     ".activation_scale"};
  return std::any_of(kEnds.begin(), kEnds.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

void expect_known(const Json& config) {
  if (config["quant_method"].str() == "compressed-tensors") {
    const std::array known = {"float-quantized", "naive-quantized", "int-quantized",
                              "pack-quantized", "nvfp4-pack-quantized"};
    const std::string format = config["format"].str();
    if (std::find(known.begin(), known.end(), format) == known.end())
      config["format"].wrong(fmt::format("{}, {}", fmt::join(known, ", "), kUnpackedInstead));
  }
}

}  // namespace

std::vector<PackedTensor> take_bitsandbytes(std::vector<SafeTensor>& tensors) {
  Names names(tensors);
  std::vector<PackedTensor> out;
  for (const SafeTensor& w : names.all()) {
    if (!w.name.ends_with(".weight")) continue;
    const std::string state = w.name + ".quant_state.bitsandbytes__",
                      stem = w.name.substr(0, w.name.size() - 7);
    if (const SafeTensor* nf4 = names.find(state + "nf4"))
      out.push_back(four_bits<NF4>(names, w, *nf4));
    else if (const SafeTensor* fp4 = names.find(state + "fp4"))
      out.push_back(four_bits<FP4>(names, w, *fp4));
    else if (const SafeTensor* scb = names.find(stem + ".SCB"))
      out.push_back(llm_int8(names, w, *scb));
    else
      continue;
    names.find(w.name);
  }
  names.drop_used();
  return out;
}

std::vector<PackedTensor> take_mxfp4(std::vector<SafeTensor>& tensors) {
  Names names(tensors);
  std::vector<PackedTensor> out;
  for (const SafeTensor& w : names.all()) {
    std::string_view stem = w.name;
    if (!drop_suffix(stem, "_blocks")) continue;
    out.push_back(mxfp4_experts(names, std::string(stem), w));
    names.find(w.name);
  }
  names.drop_used();
  return out;
}

std::vector<PackedTensor> take_scaled(const Json& config, std::vector<SafeTensor>& tensors) {
  expect_known(config);
  Names names(tensors);
  std::vector<PackedTensor> out;
  for (const SafeTensor& w : names.all()) {
    if (is_of_activations(w.name)) names.find(w.name);
    std::string_view stem = w.name;
    const bool packed = drop_suffix(stem, ".weight_packed");
    if (!packed && !drop_suffix(stem, ".weight")) continue;
    const std::string name = std::string(stem) + ".weight";
    if (packed && w.dtype == "I32") {
      out.push_back(packed_integers(names, name, w, config));
    } else if (packed || w.dtype == "U8") {
      const SafeTensor& scales = names.need(w, name + "_scale");
      // the global scale is stored as a divisor in compressed-tensors
      const SafeTensor* divisor = names.find(name + "_global_scale");
      const float whole =
          divisor ? 1 / one_number(*divisor) : one_number(names.need(w, name + "_scale_2"));
      out.push_back(nvfp4(name, w, scales, whole));
    } else if (w.dtype == "F8_E4M3" || w.dtype == "I8") {
      const SafeTensor* scales = names.find(name + "_scale_inv");
      if (!scales) scales = names.find(name + "_scale");
      if (!scales && w.dtype == "F8_E4M3") continue;  // no scale tensor: the scale is 1
      if (!scales) scales = &names.need(w, name + "_scale");
      if (w.dtype == "F8_E4M3") {
        out.push_back(e4m3(w, grid_of(*scales, w, config, F8S::kBlock)));
      } else {
        const ScaleGrid grid = grid_of(*scales, w, config, Q8F::kBlock);
        out.push_back(
            eight_bits(w, [grid](int64_t row, int64_t col) { return grid.at(row, col); }));
      }
    } else {
      continue;
    }
    names.find(w.name);
  }
  names.drop_used();
  return out;
}

}  // namespace chaski
