#include "models/import/gguf/gguf.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "ggml-like-tensor/base/checked.h"
#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/base/nearest.h"
#include "ggml-like-tensor/base/split_name.h"
#include "ggml-like-tensor/file/value_io.h"
#include "models/import/folder.h"

namespace chaski {
namespace {

// Smallest encoded sizes, for checking the counts in the header against the file's size.
constexpr uint64_t kMinValueBytes = 8 + 4 + 1;  // key length, type, one byte
// name length, n_dims, one dimension, type, offset
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr uint32_t kMaxDims = 4;
constexpr size_t kMaxKeyBytes = 65535;  // limit of the format
constexpr size_t kMaxNameBytes = 512;   // ggml's limit is 64
// Keys of a model in several files: the number of this part (from 0), the number of parts, the
// number of tensors in all parts.
constexpr const char *kSplitNumber = "split.no", *kSplitCount = "split.count",
                     *kSplitTensors = "split.tensors.count";

// ggml's type names by number. Types that chaski cannot read are included, so that a message can
// name them.
constexpr std::array<std::string_view, 42> kTensorTypes{
    "F32",     "F16",   "Q4_0",   "Q4_1",  "",      "",       "Q5_0", "Q5_1",    "Q8_0",
    "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K", "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "BF16",  "",      "",       "",     "TQ1_0",   "TQ2_0",
    "I2_S",    "",      "",       "MXFP4", "NVFP4", "Q1_0"};

std::string tensor_type_name(uint32_t type) {
  const bool known = type < kTensorTypes.size() && !kTensorTypes[type].empty();
  return known ? std::string(kTensorTypes[type]) : fmt::format("number {}", type);
}

// Advice for a type whose layout cannot be determined from the file.
std::string_view way_out(uint32_t type) {
  if (type != 36) return "";
  return "; bitnet.cpp packs I2_S in one of three orders that depend on the machine, and the file "
         "does not say which: use the model's safetensors folder or a TQ2_0 file";
}

std::vector<std::string> tensor_types() {
  std::vector<std::string> names;
  for (int f = 0; f < kFormatCount; ++f) {
    const int type = info(static_cast<Format>(f)).gguf_type;
    if (type >= 0) names.push_back(tensor_type_name(type));
  }
  return names;
}

bool is_utf8(std::string_view text) {
  auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  utf8proc_ssize_t left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code;
    const utf8proc_ssize_t n = utf8proc_iterate(at, left, &code);
    if (n < 1) return false;
    at += n, left -= n;
  }
  return true;
}

class Reader {
 public:
  Reader(const std::string& path, bool others)
      : file_{{Mapping::open(path)}, 0, {}, {}, {}},
        in_(path, file_.parts[0]->bytes()),
        others_(others) {}

  GgufFile read() {
    read_version();
    const uint64_t n_tensors = in_.take<uint64_t>("tensor count");
    const uint64_t n_values = in_.take<uint64_t>("key count");
    in_.count(n_values, kMinValueBytes, "key count");
    in_.count(n_tensors, kMinTensorBytes, "tensor count");
    for (uint64_t i = 0; i < n_values; ++i) read_pair(i);
    std::set<std::string> names;
    for (uint64_t i = 0; i < n_tensors; ++i) read_tensor(i, names);
    place_tensors();
    return std::move(file_);
  }

 private:
  void read_version() {
    auto magic = in_.raw(4, "magic");
    if (std::memcmp(magic.data(), kGgufMagic, 4) != 0)
      fail(Exit::bad_file, "{}: magic is not \"GGUF\"", in_.file());
    file_.version = in_.take<uint32_t>("version");
    if (file_.version != 0 && (file_.version & 0xffff) == 0)
      fail(Exit::bad_file, "{}: byte order is big-endian, expected little-endian", in_.file());
    if (file_.version != 2 && file_.version != 3)
      fail(Exit::bad_file, "{}: GGUF version is {}, expected 2 or 3", in_.file(), file_.version);
  }

  void read_pair(uint64_t index) {
    const std::string key = in_.text(fmt::format("key {}", index));
    if (key.empty() || key.size() > kMaxKeyBytes || !is_utf8(key))
      fail(Exit::bad_file, "{}: key {} is \"{}\", expected 1 to {} bytes of UTF-8", in_.file(),
           index, escaped(std::string_view(key).substr(0, 80)), kMaxKeyBytes);
    const std::string field = escaped(key);
    Value value = take_value(in_, field);
    if (!file_.values.emplace(key, std::move(value)).second)
      fail(Exit::bad_file, "{}: key {} appears twice", in_.file(), field);
  }

  void read_tensor(uint64_t index, std::set<std::string>& names) {
    GgufTensor t;
    t.name = in_.text(fmt::format("name of tensor {}", index));
    if (t.name.empty() || t.name.size() > kMaxNameBytes)
      fail(Exit::bad_file, "{}: name of tensor {} has {} bytes, expected 1 to {}", in_.file(),
           index, t.name.size(), kMaxNameBytes);
    const std::string field = "tensor " + escaped(t.name);
    if (!names.insert(t.name).second)
      fail(Exit::bad_file, "{}: {} appears twice", in_.file(), field);
    const std::vector<int64_t> shape = read_shape(field);
    const uint32_t type = in_.take<uint32_t>(field);
    const auto format = format_of_gguf(static_cast<int>(type));
    if (others_ && (!format || shape.size() > 2)) {
      in_.take<uint64_t>(field);  // the offset
      file_.others.push_back({t.name, tensor_type_name(type), shape});
      return;
    }
    if (!format)
      fail(Exit::bad_file, "{}: {} has type {}, expected {}{}", in_.file(), field,
           tensor_type_name(type), expected_names(tensor_type_name(type), tensor_types()),
           way_out(type));
    t.cols = shape.back();
    t.rows = rows_of(shape, field);
    t.format = *format;
    t.offset = in_.take<uint64_t>(field);
    measure(t, field);
    file_.tensors.push_back(std::move(t));
  }

  // The slowest dimension is first.
  std::vector<int64_t> read_shape(const std::string& field) {
    const uint32_t n_dims = in_.take<uint32_t>(field);
    if (n_dims == 0 || n_dims > kMaxDims)
      fail(Exit::bad_file, "{}: {} has {} dimensions, expected 1 to {}", in_.file(), field, n_dims,
           kMaxDims);
    std::vector<int64_t> shape(n_dims);
    for (uint32_t d = n_dims; d-- > 0;) {
      const uint64_t n = in_.take<uint64_t>(field);
      if (n == 0 || n > INT64_MAX)
        fail(Exit::bad_file, "{}: {} has a dimension of {}, expected 1 or more", in_.file(), field,
             n);
      shape[d] = static_cast<int64_t>(n);
    }
    return shape;
  }

  // Stacked matrices are stored one below the other.
  int64_t rows_of(const std::vector<int64_t>& shape, const std::string& field) const {
    Checked rows(1);
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows = rows * shape[i];
    const auto all = rows.get();
    if (!all || *all > INT64_MAX)
      fail(Exit::bad_file, "{}: {} has shape ({}), more than a file can hold", in_.file(), field,
           fmt::join(shape.rbegin(), shape.rend(), ", "));
    return static_cast<int64_t>(*all);
  }

  void measure(GgufTensor& t, const std::string& field) {
    const FormatInfo& f = info(t.format);
    if (t.cols % f.block != 0)
      fail(Exit::bad_file, "{}: {} has {} columns, expected a multiple of {} for {}", in_.file(),
           field, t.cols, f.block, f.name);
    const auto bytes = (Checked(t.cols / f.block) * f.row_block_bytes * t.rows).get();
    if (!bytes)
      fail(Exit::bad_file, "{}: {} has shape ({}, {}), more than a file can hold", in_.file(),
           field, t.rows, t.cols);
    t.bytes = *bytes;
  }

  // Converts offsets in the data section into offsets in the file, and checks that the tensors do
  // not overlap and fit into the file.
  void place_tensors() {
    const uint64_t alignment = read_alignment(), size = file_.parts[0]->bytes().size();
    const uint64_t start = (in_.at() + alignment - 1) / alignment * alignment;
    if (const auto whole = whole_size(start, alignment); whole && *whole > size)
      throw CutShort(in_.file(), size, *whole);
    for (auto& t : file_.tensors) {
      const std::string field = "tensor " + escaped(t.name);
      if (t.offset % alignment != 0)
        fail(Exit::bad_file, "{}: {} has offset {}, expected a multiple of {}", in_.file(), field,
             t.offset, alignment);
      if (!(Checked(start) + t.offset + t.bytes).at_most(size))
        fail(
            Exit::bad_file,
            "{}: {} has {} bytes at offset {} of the data section, which has {} bytes: the file is "
            "cut short or damaged",
            in_.file(), field, t.bytes, t.offset, size > start ? size - start : 0);
      t.offset += start;
    }
    refuse_overlaps();
  }

  // The size that the file should have, if it has tensors and they are stored without gaps.
  std::optional<uint64_t> whole_size(uint64_t start, uint64_t alignment) const {
    uint64_t end = 0;
    Checked sum(0);
    for (const GgufTensor& t : file_.tensors) {
      const auto here = (Checked(t.offset) + t.bytes).get();
      if (!here || t.bytes > UINT64_MAX - alignment) return std::nullopt;
      end = std::max(end, *here);
      sum = sum + (t.bytes + alignment - 1) / alignment * alignment;
    }
    const auto all = sum.get();
    if (!all || end == 0 || *all < end || *all - end >= alignment) return std::nullopt;
    return (Checked(start) + end).get();
  }

  uint64_t read_alignment() const {
    auto found = file_.values.find("general.alignment");
    if (found == file_.values.end()) return kGgufAlignment;
    auto* value = std::get_if<int64_t>(&found->second.data);
    if (!value || !is_gguf_alignment(*value))
      fail(Exit::bad_file, "{}: general.alignment is {}, expected a power of two up to {}",
           in_.file(), value ? fmt::to_string(*value) : type_name(found->second),
           kMaxGgufAlignment);
    return static_cast<uint64_t>(*value);
  }

  void refuse_overlaps() const {
    std::vector<const GgufTensor*> sorted;
    for (auto& t : file_.tensors) sorted.push_back(&t);
    std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < sorted.size(); ++i)
      if (sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->offset)
        fail(Exit::bad_file, "{}: tensors {} and {} overlap at offset {}, expected no overlap",
             in_.file(), escaped(sorted[i - 1]->name), escaped(sorted[i]->name), sorted[i]->offset);
  }

  GgufFile file_;
  Cursor in_;
  bool others_;
};

// The value of a split key; 0 if there is none.
int64_t number_of_split(const GgufFile& file, const char* key) {
  const auto found = file.values.find(key);
  if (found == file.values.end()) return 0;
  const auto* value = std::get_if<int64_t>(&found->second.data);
  if (!value || *value < 0 || *value > 65535)
    fail(Exit::bad_file, "{}: {} is {}, expected 0 to 65535", file.parts[0]->path(), key,
         value ? fmt::to_string(*value) : type_name(found->second));
  return *value;
}

// Adds the tensors of the other parts, which are in the same folder, after those of the first.
void take_parts(GgufFile& file, const std::string& path, int64_t count, bool others) {
  const std::vector<std::string> names = names_of_parts(path);
  const bool named = int64_t(names.size()) == count;
  if (const int64_t number = number_of_split(file, kSplitNumber); number != 0)
    fail(Exit::bad_file, "{}: file is part {} of {} of a model, expected the first: {}", path,
         number + 1, count, named ? names[0] : fmt::format("...-00001-of-{:05}.gguf", count));
  if (!named || names[0] != path)
    fail(Exit::bad_file,
         "{}: file is the first of {} parts, expected a name that ends in -00001-of-{:05}.gguf, "
         "from which the other names follow",
         path, count, count);
  std::set<std::string> seen;
  for (const GgufTensor& t : file.tensors) seen.insert(t.name);
  for (const GgufOther& t : file.others) seen.insert(t.name);
  for (size_t i = 1; i < names.size(); ++i) {
    if (!exists(names[i]))
      fail(Exit::io, "{}: file is missing, expected part {} of {} next to {}", names[i], i + 1,
           count, path);
    GgufFile part = Reader(names[i], others).read();
    const int64_t number = number_of_split(part, kSplitNumber),
                  of = number_of_split(part, kSplitCount);
    if (number != int64_t(i) || of != count)
      fail(Exit::bad_file, "{}: file is part {} of {}, expected part {} of {} as in its name",
           names[i], number + 1, of, i + 1, count);
    const auto expect_new = [&](const std::string& name) {
      if (!seen.insert(name).second)
        fail(Exit::bad_file, "{}: tensor {} is also in an earlier part", names[i], escaped(name));
    };
    for (GgufTensor& t : part.tensors) {
      expect_new(t.name);
      t.part = i;
      file.tensors.push_back(std::move(t));
    }
    for (GgufOther& t : part.others) {
      expect_new(t.name);
      file.others.push_back(std::move(t));
    }
    file.parts.push_back(std::move(part.parts[0]));
  }
  const int64_t all = number_of_split(file, kSplitTensors);
  if (all != 0 && all != int64_t(seen.size()))
    fail(Exit::bad_file, "{}: {} is {}, but the {} parts have {} tensors", path, kSplitTensors, all,
         count, seen.size());
  for (const char* key : {kSplitNumber, kSplitCount, kSplitTensors}) file.values.erase(key);
}

}  // namespace

GgufFile read_gguf(const std::string& path, bool others) {
  GgufFile file = Reader(path, others).read();
  const int64_t count = number_of_split(file, kSplitCount);
  if (count > 1) take_parts(file, path, count, others);
  return file;
}

std::string kind_of(const GgufFile& file) {
  return fmt::format("GGUF v{}", file.version) +
         (file.parts.size() > 1 ? fmt::format(" in {} files", file.parts.size()) : "");
}

bool is_gguf_alignment(int64_t value) {
  return value > 0 && value <= kMaxGgufAlignment && (value & (value - 1)) == 0;
}

std::string type_name(const Value& value) {
  constexpr std::string_view names[] = {"u8",   "i8",  "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "str", "array", "u64", "i64", "f64"};
  const std::string name(names[static_cast<uint32_t>(value.type)]);
  if (value.type != ValueType::array) return name;
  return fmt::format("array of {}", names[static_cast<uint32_t>(value.element)]);
}

}  // namespace chaski
