#include "models/import/hf/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "ggml-like-tensor/base/checked.h"
#include "ggml-like-tensor/base/cursor.h"
#include "models/import/folder.h"
#include "models/import/json_file.h"

namespace chaski {
namespace {

struct Dtype {
  std::string_view name;
  uint64_t bytes;
  std::optional<Format> format;
};
constexpr Dtype kDtypes[] = {
    {"F32", 4, Format::f32},
    {"F16", 2, Format::f16},
    {"BF16", 2, Format::bf16},
    {"F64", 8, {}},
    {"F8_E4M3", 1, Format::f8},
    {"F8_E5M2", 1, {}},
    {"I64", 8, {}},
    {"I32", 4, {}},
    {"I16", 2, {}},
    {"I8", 1, {}},
    {"U64", 8, {}},
    {"U32", 4, {}},
    {"U16", 2, {}},
    {"U8", 1, {}},
    {"BOOL", 1, {}},
};

constexpr size_t kMaxShape = 8;
constexpr size_t kMaxTensorName = 512;

struct Span {
  uint64_t begin, end;  // in the buffer after the header
};

const Dtype& dtype_of(const Json& entry) {
  const std::string& name = entry["dtype"].str();
  for (auto& dtype : kDtypes)
    if (dtype.name == name) return dtype;
  entry["dtype"].wrong("F32, F16, BF16 or F8_E4M3");
}

std::vector<int64_t> shape_of(const Json& entry) {
  const Json dims = entry["shape"];
  if (!dims.is_array() || dims.size() > kMaxShape) dims.wrong("an array of at most 8 integers");
  std::vector<int64_t> shape;
  for (size_t d = 0; d < dims.size(); ++d) {
    shape.push_back(dims.at(d).integer());
    if (shape.back() < 1) dims.at(d).wrong("1 or more");
  }
  return shape;
}

Span span_of(const Json& entry, const std::vector<int64_t>& shape, uint64_t item) {
  const Json offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) offsets.wrong("[begin, end]");
  const int64_t begin = offsets.at(0).integer(), end = offsets.at(1).integer();
  if (begin < 0) offsets.at(0).wrong("0 or more");
  if (end < begin) offsets.at(1).wrong(fmt::format("at least the begin, {}", begin));
  Checked bytes = item;
  for (int64_t n : shape) bytes = bytes * static_cast<uint64_t>(n);
  if (bytes.get() != static_cast<uint64_t>(end - begin))
    offsets.at(1).wrong(
        fmt::format("{} as the shape says",
                    bytes.get() ? std::to_string(begin + *bytes.get()) : "more than 2^64"));
  return {static_cast<uint64_t>(begin), static_cast<uint64_t>(end)};
}

// The format requires that tensors cover the buffer without gaps and overlaps.
void check_cover(const std::string& path, const std::vector<std::pair<Span, SafeTensor>>& sorted,
                 uint64_t header, uint64_t buffer) {
  uint64_t at = 0;
  for (auto& [span, tensor] : sorted) {
    if (span.begin != at)
      fail(Exit::bad_file, "{}: tensor {} begins at {}, expected {}, the end of the one before",
           path, escaped(tensor.name), span.begin, at);
    at = span.end;
  }
  if (at > buffer) throw CutShort(path, header + buffer, header + at);
  if (at != buffer)
    fail(Exit::bad_file, "{}: tensors have {} bytes, expected {}, all bytes after the header", path,
         at, buffer);
}

// A number is not finite if all these exponent bits are set.
template <class Bits>
void expect_no_exponent(const SafeTensor& t, Bits exponent) {
  size_t n = 1;
  for (const int64_t d : t.shape) n *= size_t(d);
  for (size_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, t.data + i * sizeof bits, sizeof bits);
    if ((bits & exponent) == exponent)
      fail(Exit::bad_file, "{}: number {} of tensor {} is not finite: the file is damaged", t.file,
           i, escaped(t.name));
  }
}

// The shards of an index, by the tensors that are wanted.
void read_shards(const std::string& folder, const std::string& index,
                 const std::function<void(const std::string& path)>& add,
                 const std::function<bool(const std::string&)>& is_wanted,
                 const std::vector<SafeTensor>& tensors) {
  const Json map = read_json(index)["weight_map"];
  std::map<std::string, std::string> wanted;
  std::set<std::string> shards;
  map.each([&](const std::string& name, const Json& shard) {
    if (!is_plain_name(shard.str())) shard.wrong("a plain file name");
    if (!is_wanted(name)) return;
    wanted[name] = folder + "/" + shard.str();
    shards.insert(shard.str());
  });
  for (auto& shard : shards) add(folder + "/" + shard);
  for (auto& tensor : tensors) {
    auto place = wanted.find(tensor.name);
    if (place == wanted.end() || place->second != tensor.file)
      fail(Exit::bad_file, "{}: tensor {} is not in the weight_map of {}", tensor.file,
           escaped(tensor.name), index);
    wanted.erase(place);
  }
  if (!wanted.empty())
    fail(Exit::bad_file, "{}: weight_map has tensor {} in {}, but that file does not have it",
         index, escaped(wanted.begin()->first), escaped(wanted.begin()->second));
}

}  // namespace

SafetensorsFolder read_safetensors_folder(
    const std::string& folder, const std::function<bool(const std::string& name)>& wanted) {
  SafetensorsFolder all;
  const auto add = [&](const std::string& path) {
    SafetensorsFile file = read_safetensors(path);
    all.mappings.push_back(std::move(file.mapping));
    for (auto& tensor : file.tensors)
      if (wanted(tensor.name)) all.tensors.push_back(std::move(tensor));
  };
  const std::string index = folder + "/model.safetensors.index.json",
                    single = folder + "/model.safetensors";
  if (exists(index) && !exists(single))
    read_shards(folder, index, add, wanted, all.tensors);
  else
    add(single);
  return all;
}

SafetensorsFile read_safetensors(const std::string& path) {
  SafetensorsFile file{Mapping::open(path), {}};
  Cursor in(path, file.mapping->bytes());
  const uint64_t header_bytes = in.take<uint64_t>("header length");
  if (header_bytes > kMaxJsonBytes)
    fail(Exit::bad_file, "{}: header length is {}, expected at most {}", path, header_bytes,
         kMaxJsonBytes);
  auto text = in.raw(header_bytes, "header");
  const Json header = parse_json(path, {reinterpret_cast<const char*>(text.data()), text.size()});
  const uint64_t buffer = in.remaining();

  std::vector<std::pair<Span, SafeTensor>> found;
  header.each([&](const std::string& name, const Json& entry) {
    if (name == "__metadata__") return;
    if (name.size() > kMaxTensorName)
      fail(Exit::bad_file, "{}: a tensor's name has {} bytes, expected at most {}", path,
           name.size(), kMaxTensorName);
    const Dtype& dtype = dtype_of(entry);
    SafeTensor tensor{name, std::string(dtype.name), shape_of(entry), dtype.format, nullptr, path};
    const Span span = span_of(entry, tensor.shape, dtype.bytes);
    found.emplace_back(span, std::move(tensor));
  });
  std::sort(found.begin(), found.end(),
            [](auto& a, auto& b) { return a.first.begin < b.first.begin; });
  check_cover(path, found, in.at(), buffer);
  for (auto& [span, tensor] : found) {
    tensor.data = file.mapping->bytes().data() + in.at() + span.begin;
    tensor.size = span.end - span.begin;
    file.tensors.push_back(std::move(tensor));
  }
  return file;
}

void expect_finite(const SafeTensor& t) {
  switch (*t.format) {
    case Format::f32:
      return expect_no_exponent<uint32_t>(t, 0x7f800000);
    case Format::f16:
      return expect_no_exponent<uint16_t>(t, 0x7c00);
    case Format::bf16:
      return expect_no_exponent<uint16_t>(t, 0x7f80);
    default:
      return expect_no_exponent<uint8_t>(t, 0x7f);  // e4m3, which has no infinity
  }
}

bool is_of_next_layer(std::string_view name) { return name.starts_with("model.mtp_"); }

bool is_of_further_layer(std::string_view name) {
  return name.starts_with("mtp.") || name.starts_with("model.mtp.");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

void expect_no_pickle(const std::string& folder, const std::string& pickle,
                      const std::string& file) {
  if (exists(folder + "/" + file) || !exists(folder + "/" + pickle)) return;
  fail(Exit::bad_file,
       "{}/{}: is a Python pickle, which can run code, expected {}. To make it, run this in that "
       "folder: python3 -c \"import torch, safetensors.torch as s; s.save_file({{k: v.clone() for "
       "k, "
       "v in torch.load('{}', map_location='cpu', weights_only=True).items()}}, '{}')\"",
       folder, pickle, file, pickle, file);
}

}  // namespace chaski
