// Models for the tests of the .quipu file, and what those tests share.
#pragma once
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/file/value_io.h"
#include "tests/kit/support.h"

namespace chaski::quipu_test {

using test::contains;
using test::files_in;
using test::read_file;
using test::TempFolder;
using test::write_file;

using test::error_of;

// A tensor whose bytes depend on its name and on their positions.
inline TensorSource tensor(const std::string& name, Format format, int64_t rows, int64_t cols) {
  const TensorInfo info{name, format, rows, cols};
  const uint64_t strip = info.tiled() ? strip_bytes(format, cols) : row_bytes(format, cols);
  return {info, [strip, seed = std::hash<std::string>()(name)](int64_t first, int64_t last,
                                                               std::byte* dst) {
            for (uint64_t i = first * strip; i < last * strip; i++)
              *dst++ = std::byte((i * 0x9e3779b97f4a7c15 + seed) >> 56);
          }};
}

inline Metadata every_kind_of_value() {
  Metadata meta;
  meta.origin = "test";
  const auto scalar = [&](ValueType type, decltype(Value::data) data) {
    meta.set(fmt::format("scalar.{}", static_cast<int>(type)), {type, ValueType::i64, data});
  };
  const auto array = [&](ValueType type, decltype(Value::data) data) {
    meta.set(fmt::format("array.{}", static_cast<int>(type)), {ValueType::array, type, data});
  };
  using Ints = std::vector<int64_t>;
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(),
                    kMax = std::numeric_limits<int64_t>::max();
  scalar(ValueType::u8, 255), array(ValueType::u8, Ints{0, 255});
  scalar(ValueType::i8, -128), array(ValueType::i8, Ints{-128, 127});
  scalar(ValueType::u16, 65535), array(ValueType::u16, Ints{0, 65535});
  scalar(ValueType::i16, -32768), array(ValueType::i16, Ints{-32768, 32767});
  scalar(ValueType::u32, 4294967295), array(ValueType::u32, Ints{0, 4294967295});
  scalar(ValueType::i32, -2147483648), array(ValueType::i32, Ints{-2147483648, 2147483647});
  scalar(ValueType::u64, -1), array(ValueType::u64, Ints{0, -1, kMin});
  scalar(ValueType::i64, kMin), array(ValueType::i64, Ints{kMin, kMax});
  scalar(ValueType::f32, 0.1f), array(ValueType::f32, std::vector<double>{0.1f, -0.0, 1e30f});
  scalar(ValueType::f64, 0.1), array(ValueType::f64, std::vector<double>{0.1, 1e300});
  scalar(ValueType::boolean, 1), array(ValueType::boolean, Ints{0, 1, 1});
  scalar(ValueType::str, std::string("a\0b\xff", 4)),
      array(ValueType::str, std::vector<std::string>{"", "two", "日本"});
  meta.set("array.empty", {ValueType::array, ValueType::str, std::vector<std::string>{}});
  return meta;
}

inline ModelSource tiny() {
  ModelSource source{"", "test", every_kind_of_value(), {}, nullptr};
  source.tensors = {tensor("norm", Format::f32, 1, 10),
                    tensor("layer.0.attn_q", Format::q8, 20, 32),
                    tensor("output", Format::f16, 16, 3)};
  return source;
}

// Tensors of several chunks, and a last strip that is not full.
inline ModelSource several_megabytes() {
  ModelSource source{"", "test", every_kind_of_value(), {}, nullptr};
  source.tensors = {tensor("token_embd", Format::f32, 4100, 512),
                    tensor("norm", Format::f32, 1, 512),
                    tensor("layer.0.ffn_up", Format::q4, 3000, 1024),
                    tensor("layer.0.ffn_down", Format::f16, 100, 3000)};
  return source;
}

inline std::string written(const std::string& path, const ModelSource& source, int threads = 1) {
  write_quipu(path, source, threads);
  return read_file(path);
}

// Bytes at an aligned address. What follows them is not readable under AddressSanitizer.
struct Aligned {
  explicit Aligned(std::string_view text)
      : size(text.size()), data(new (std::align_val_t(64)) std::byte[size]) {
    std::memcpy(data, text.data(), size);
  }
  ~Aligned() { operator delete[](data, std::align_val_t(64)); }
  std::span<const std::byte> span() const { return {data, size}; }
  size_t size;
  std::byte* data;
};

}  // namespace chaski::quipu_test
