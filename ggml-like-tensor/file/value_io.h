// What reading and writing a .quipu file share: how metadata values and the header are encoded.
// Values have GGUF's encoding, so importers may use take_value() and append_value(). The tensors'
// bytes are not decoded here; only kernels do that.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/file/metadata.h"
#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

constexpr std::string_view kQuipuMagic("QUIPU\0\0", 7);  // the eighth byte is the version
constexpr uint8_t kQuipuVersion = 1;
constexpr uint64_t kQuipuPreamble = 8 + 8 + 8;  // magic and version, header bytes, header sum
inline uint32_t layout_of(const TensorInfo& t) {
  return t.tiled() ? info(t.format).tile_layout : 0;
}

// A line of the tensor table.
struct TableRow {
  TensorInfo info;
  uint64_t offset = 0;
  uint64_t sum = 0;  // XXH3-64 of the tensor's bytes
};

struct QuipuHeader {
  Metadata meta;
  std::vector<TableRow> table;
};

// Takes the bytes of a header in order, in pieces of at most some hundred KB: the header of a model
// with a large vocabulary has megabytes.
using TakePiece = std::function<void(std::string_view)>;

// Encodes what follows the preamble, and returns the preamble. The sizes depend on names and
// metadata alone, not on offsets and checksums. Throws Error(bad_file) for an integer that its type
// cannot hold, and for a list that the reader would refuse.
std::string encode_header(const Metadata& meta, const std::vector<TableRow>& table,
                          const TakePiece& take);
// Bytes of preamble and header.
uint64_t header_bytes(const Metadata& meta, const std::vector<TableRow>& table);

// Checks everything that can be checked without reading a tensor. The file has `file_bytes` and
// starts with `bytes`.
QuipuHeader decode_header(const std::string& file, std::span<const std::byte> bytes,
                          uint64_t file_bytes);

// `field` is for error messages; escape it if it comes from a file. An array of arrays is refused.
Value take_value(Cursor& in, const std::string& field);
// `item_added` is called after each item of a list; it may empty `out`.
void append_value(std::string& out, const Value& value, const std::string& field,
                  const std::function<void()>& item_added = {});
// Throws Error(bad_file) for more items than a list may have. `where` is for the message.
void expect_list_size(uint64_t items, const std::string& where);

// Calls f with an object of the C++ type in which `type` is stored. This is the list of value
// types. Not for arrays.
template <class F>
void as_stored(ValueType type, const std::string& field, F&& f) {
  switch (type) {
    case ValueType::u8:
      return f(uint8_t{});
    case ValueType::i8:
      return f(int8_t{});
    case ValueType::u16:
      return f(uint16_t{});
    case ValueType::i16:
      return f(int16_t{});
    case ValueType::u32:
      return f(uint32_t{});
    case ValueType::i32:
      return f(int32_t{});
    case ValueType::u64:
      return f(uint64_t{});
    case ValueType::i64:
      return f(int64_t{});
    case ValueType::f32:
      return f(float{});
    case ValueType::f64:
      return f(double{});
    case ValueType::boolean:
      return f(bool{});
    case ValueType::str:
      return f(std::string{});
    case ValueType::array:
      fail(Exit::bad_file, "{} is an array of arrays, expected an array of scalars or strings",
           field);
  }
  fail(Exit::bad_file, "{} has value type {}, expected 0 to 12", field,
       static_cast<uint32_t>(type));
}

// The type that a Value holds for the stored type T.
template <class T>
using Held = std::conditional_t<std::is_same_v<T, std::string>, std::string,
                                std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>;
// The list type for an array of T.
template <class T>
using HeldList = std::conditional_t<std::is_same_v<T, std::string>, Texts, Numbers<Held<T>>>;

}  // namespace chaski
