// The GGUF container, versions 2 and 3, little-endian: header, typed key/values, tensor table. A
// model may be in several files, NAME-00001-of-00003.gguf and so on: the first has the key/values
// of all. Says what is in them and that all of it is where the tables say; what the keys mean is
// import_gguf.cpp's business. Format: ggml-org/ggml, docs/gguf.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/file/metadata.h"
#include "quant/format.h"

namespace chaski {

constexpr char kGgufMagic[] = "GGUF";
constexpr int64_t kGgufAlignment = 32;  // when the file does not say general.alignment
constexpr int64_t kMaxGgufAlignment = 1 << 20;

struct GgufTensor {
  std::string name;  // as in the file
  Format format;
  int64_t rows, cols;  // ne[0] is cols; one dimension: rows == 1
  uint64_t offset;     // from the start of its file
  uint64_t bytes;
  size_t part = 0;  // the file it is in
};

// One of a type that chaski has no format for, or of more than two dimensions.
struct GgufOther {
  std::string name, type;
  std::vector<int64_t> shape;  // slowest first
};

struct GgufFile {
  std::vector<std::shared_ptr<const Mapping>> parts;  // mostly one
  uint32_t version;
  std::map<std::string, Value> values;
  std::vector<GgufTensor> tensors;  // in the order of the parts, and in theirs
  std::vector<GgufOther> others;    // if they were asked for

  const std::byte* data(const GgufTensor& t) const {
    return parts[t.part]->bytes().data() + t.offset;
  }
};

// With all parts, of which `path` has to be the first. Throws Error(bad_file | io), also for a
// tensor that could only be one of `others`, if they were not asked for.
GgufFile read_gguf(const std::string& path, bool others = false);

// "GGUF v3", "GGUF v3 in 3 files": ModelSource::kind.
std::string kind_of(const GgufFile& file);

bool is_gguf_alignment(int64_t value);

// "u32", "array of str": for error lines.
std::string type_name(const Value& value);

}  // namespace chaski
