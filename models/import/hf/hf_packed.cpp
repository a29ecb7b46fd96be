#include "models/import/hf/hf_packed.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "ggml-like-tensor/base/error.h"
#include "models/import/hf/hf_scaled.h"
#include "models/import/json_file.h"
#include "quant/formats.h"

namespace chaski {
namespace {

struct Method {
  bool awq = false;
  int bits = 4;
  int64_t group = -1;  // columns that share a scale; -1: all
  int zero_more = 1;   // GPTQ's first format stores zero points minus one
};

Method method_of(const Json& config) {
  const Json name = config["quant_method"];
  Method m;
  m.awq = name.str() == "awq";
  if (!m.awq && name.str() != "gptq")
    name.wrong(
        fmt::format("gptq, awq, bitsandbytes, fp8, fbgemm_fp8, compressed-tensors, modelopt, "
                    "mxfp4 or bitnet, {}",
                    kUnpackedInstead));
  const int64_t bits = config["bits"].integer();
  if (bits != 4 && (m.awq || (bits != 2 && bits != 8)))
    config["bits"].wrong(fmt::format("{}, {}", m.awq ? "4" : "2, 4 or 8", kUnpackedInstead));
  m.bits = static_cast<int>(bits);
  m.group = config["group_size"].integer();
  if (m.group != -1 && (m.group < 32 || m.group % 32 != 0))
    config["group_size"].wrong(fmt::format("-1 or a multiple of 32, {}", kUnpackedInstead));
  if (m.awq && config["version"].str("gemm") != "gemm" && config["version"].str() != "GEMM")
    config["version"].wrong(fmt::format("gemm, {}", kUnpackedInstead));
  if (m.awq || config["checkpoint_format"].str("gptq") == "gptq_v2") m.zero_more = 0;
  if (!m.awq && m.zero_more == 1 && config["checkpoint_format"].str("gptq") != "gptq")
    config["checkpoint_format"].wrong(fmt::format("gptq or gptq_v2, {}", kUnpackedInstead));
  return m;
}

// The tensors of one weight, and the meaning of their numbers.
class Packed {
 public:
  Packed(std::string name, const Method& method, std::map<std::string, SafeTensor> parts)
      : name_(std::move(name)), method_(method), parts_(std::move(parts)) {
    const SafeTensor &q = part("qweight", "I32", 2), &scales = part("scales", "F16", 2),
                     &zeros = part("qzeros", "I32", 2);
    cols_ = method.awq ? q.shape[0] : q.shape[0] * per_word();
    rows_ = method.awq ? q.shape[1] * per_word() : q.shape[1];
    if (cols_ % 32 != 0) refuse("qweight", fmt::format("{} columns", cols_), "a multiple of 32");
    const int64_t group = method.group == -1 ? cols_ : std::min(method.group, cols_);
    groups_ = (cols_ + group - 1) / group;
    expect_shape(scales, "scales", {groups_, rows_});
    expect_shape(zeros, "qzeros", {groups_, rows_ / per_word()});
    if (rows_ % per_word() != 0)
      refuse("qweight", fmt::format("{} rows", rows_), fmt::format("a multiple of {}", per_word()));
    codes_ = q.data, scales_ = scales.data, zeros_ = zeros.data;
    for (int64_t b = 0; b < cols_ / 32; ++b) group_of_block_.push_back(b * 32 / group);
    if (parts_.count("g_idx")) read_order();
    choose_format();
  }

  PackedTensor tensor() && {
    PackedTensor t{name_ + ".weight", part("qweight", "I32", 2).file, format_, rows_, cols_, {}};
    t.order.assign(order_.begin(), order_.end());
    t.read = [packed = std::move(*this)](int64_t row, std::byte* dst) { packed.write(row, dst); };
    return t;
  }

 private:
  int per_word() const { return 32 / method_.bits; }
  int largest() const { return (1 << method_.bits) - 1; }

  [[noreturn]] void refuse(std::string_view which, std::string_view found,
                           std::string_view expected) const {
    fail(Exit::bad_file, "{}: tensor {}.{} has {}, expected {}, {}", parts_.begin()->second.file,
         escaped(name_), which, found, expected, kUnpackedInstead);
  }
  const SafeTensor& part(const std::string& which, std::string_view dtype, size_t dims) const {
    const auto at = parts_.find(which);
    if (at == parts_.end())
      fail(Exit::bad_file, "{}: tensor {}.{} is missing, expected it together with {}.{}",
           parts_.begin()->second.file, escaped(name_), which, escaped(name_),
           parts_.begin()->first);
    if (at->second.dtype != dtype) refuse(which, "dtype " + at->second.dtype, std::string(dtype));
    if (at->second.shape.size() != dims)
      refuse(which, fmt::format("shape ({})", fmt::join(at->second.shape, ", ")),
             fmt::format("{} dimensions", dims));
    return at->second;
  }
  void expect_shape(const SafeTensor& t, std::string_view which,
                    const std::vector<int64_t>& wanted) const {
    if (t.shape != wanted)
      refuse(which, fmt::format("shape ({})", fmt::join(t.shape, ", ")),
             fmt::format("({})", fmt::join(wanted, ", ")));
  }

  // Act-order: g_idx gives the group of each column. A block of ours has one scale, so its columns
  // must belong to one group. If they do not, the columns are sorted by group, and x in the same
  // order.
  void read_order() {
    std::vector<int64_t> groups;
    const SafeTensor& order = part("g_idx", "I32", 1);
    expect_shape(order, "g_idx", {cols_});
    for (int64_t c = 0; c < cols_; ++c) {
      int32_t g;
      std::memcpy(&g, order.data + 4 * c, sizeof g);
      if (g < 0 || g >= groups_)
        refuse("g_idx", fmt::format("group {} for column {}", g, c),
               fmt::format("0 to {}", groups_ - 1));
      groups.push_back(g);
    }
    if (mixed_block(groups)) {
      for (int64_t c = 0; c < cols_; ++c) order_.push_back(c);
      std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
        return groups[static_cast<size_t>(a)] < groups[static_cast<size_t>(b)];
      });
      std::sort(groups.begin(), groups.end());
    }
    if (const auto block = mixed_block(groups))
      refuse("g_idx",
             fmt::format("group {} that begins or ends within a block of 32 columns",
                         groups[static_cast<size_t>(*block * 32)]),
             "groups of a multiple of 32 columns");
    for (int64_t b = 0; b < cols_ / 32; ++b)
      group_of_block_[static_cast<size_t>(b)] = groups[static_cast<size_t>(32 * b)];
  }
  // The first block of 32 columns that has several groups.
  static std::optional<int64_t> mixed_block(const std::vector<int64_t>& groups) {
    for (size_t c = 0; c < groups.size(); ++c)
      if (groups[c] != groups[c / 32 * 32]) return static_cast<int64_t>(c / 32);
    return {};
  }

  uint32_t word(const std::byte* from, int64_t at) const {
    uint32_t w;
    std::memcpy(&w, from + 4 * at, sizeof w);
    return w;
  }
  // AWQ packs row 8k + j at nibble kPlaces[j] of its word.
  int in_word(uint32_t word, int64_t i) const {
    constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t at = i % per_word();
    return static_cast<int>(word >> method_.bits * (method_.awq ? kPlaces[at] : at)) & largest();
  }
  int code(int64_t row, int64_t col) const {
    if (method_.awq) return in_word(word(codes_, col * (rows_ / 8) + row / 8), row);
    return in_word(word(codes_, col / per_word() * rows_ + row), col);
  }
  // Stored minus one, a zero point of 0 wraps to all ones.
  int zero(int64_t row, int64_t group) const {
    const uint32_t w = word(zeros_, group * (rows_ / per_word()) + row / per_word());
    return (in_word(w, row) + method_.zero_more) & largest();
  }

  void choose_format() {
    int least = largest(), most = 0;
    for (int64_t g = 0; g < groups_; ++g)
      for (int64_t r = 0; r < rows_; ++r)
        least = std::min(least, zero(r, g)), most = std::max(most, zero(r, g));
    const int low = -most, high = largest() - least;
    if (low >= -8 && high <= 7)
      format_ = Format::q4_0;
    else if (low >= -16 && high <= 15)
      format_ = Format::q5_0;
    else if (low >= -128 && high <= 127)
      format_ = Format::q8;
    else
      refuse("qzeros", fmt::format("zero points {} to {}", least, most),
             "128: 8 bits, symmetric (sym: true)");
  }

  // Writes the row in row layout.
  void write(int64_t row, std::byte* dst) const {
    for (int64_t b = 0; b < cols_ / 32; ++b) {
      const int64_t group = group_of_block_[static_cast<size_t>(b)];
      uint16_t d;
      std::memcpy(&d, scales_ + 2 * (group * rows_ + row), sizeof d);
      const int less = zero(row, group);
      int values[32];
      for (int i = 0; i < 32; ++i) {
        const int64_t c = 32 * b + i;
        values[i] = code(row, order_.empty() ? c : order_[static_cast<size_t>(c)]) - less;
      }
      if (format_ == Format::q4_0)
        put(Q4_0::Block{d, {}}, values, 8, dst + b * sizeof(Q4_0::Block));
      else if (format_ == Format::q5_0)
        put(Q5_0::Block{d, {}, {}}, values, 16, dst + b * sizeof(Q5_0::Block));
      else
        put(Q8::Block{d, {}}, values, 0, dst + b * sizeof(Q8::Block));
    }
  }
  template <class Block>
  static void put(Block block, const int* values, int offset, std::byte* dst) {
    for (int i = 0; i < 32; ++i) {
      const int q = values[i] + offset;
      if constexpr (std::is_same_v<Block, Q8::Block>) {
        block.q[i] = static_cast<int8_t>(q);
      } else {
        block.q[i % 16] |= static_cast<uint8_t>((q & 15) << (i < 16 ? 0 : 4));
        if constexpr (std::is_same_v<Block, Q5_0::Block>)
          block.high[i / 8] |= static_cast<uint8_t>(q >> 4 << i % 8);
      }
    }
    std::memcpy(dst, &block, sizeof block);
  }

  std::string name_;
  Method method_;
  std::map<std::string, SafeTensor> parts_;
  int64_t rows_, cols_, groups_;
  const std::byte *codes_, *scales_, *zeros_;
  std::vector<int64_t> group_of_block_;
  std::vector<int64_t> order_;  // the file's column for each of ours; empty: the same
  Format format_ = Format::q4_0;
};

}  // namespace

std::vector<PackedTensor> take_packed(const HfConfig& read, std::vector<SafeTensor>& tensors) {
  if (!read.quantization) return {};
  const Json& config = *read.quantization;
  const std::string name = config["quant_method"].str();
  if (name == "bitnet") return {};
  if (name == "bitsandbytes") return take_bitsandbytes(tensors);
  if (name == "mxfp4") return take_mxfp4(tensors);
  for (const std::string_view scaled : {"fp8", "fbgemm_fp8", "compressed-tensors", "modelopt"})
    if (name == scaled) return take_scaled(config, tensors);
  const Method method = method_of(config);
  std::map<std::string, std::map<std::string, SafeTensor>> packed;  // by name, by part
  std::erase_if(tensors, [&](const SafeTensor& t) {
    const size_t dot = t.name.rfind('.');
    const std::string part = dot == t.name.npos ? "" : t.name.substr(dot + 1);
    if (part != "qweight" && part != "qzeros" && part != "scales" && part != "g_idx") return false;
    return packed[t.name.substr(0, dot)].emplace(part, t).second;
  });
  std::vector<PackedTensor> out;
  for (auto& [name, parts] : packed) out.push_back(Packed(name, method, std::move(parts)).tensor());
  return out;
}

}  // namespace chaski
