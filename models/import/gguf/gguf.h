// The GGUF container, versions 2 and 3, little-endian: header, typed key/values, tensor table. A
// model may have several files, NAME-00001-of-00003.gguf and so on; the first one has the
// key/values of the model. This reader checks that all bytes are where the tables say.
// import_gguf.cpp interprets the keys. Format: ggml-org/ggml, docs/gguf.md.
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
constexpr int64_t kGgufAlignment = 32;  // if the file has no general.alignment
constexpr int64_t kMaxGgufAlignment = 1 << 20;

struct GgufTensor {
  std::string name;  // as in the file
  Format format;
  int64_t rows, cols;  // ne[0] is cols; one dimension: rows == 1
  uint64_t offset;     // from the start of its file
  uint64_t bytes;
  size_t part = 0;  // index of its file in `parts`
};

// A tensor whose type chaski has no format for, or with more than two dimensions.
struct GgufOther {
  std::string name, type;
  std::vector<int64_t> shape;  // slowest dimension first
};

struct GgufFile {
  std::vector<std::shared_ptr<const Mapping>> parts;  // usually one
  uint32_t version;
  std::map<std::string, Value> values;
  std::vector<GgufTensor> tensors;  // part by part, in file order
  std::vector<GgufOther> others;    // only if requested

  const std::byte* data(const GgufTensor& t) const {
    return parts[t.part]->bytes().data() + t.offset;
  }
};

// Reads all parts; `path` must be the first. Throws Error(bad_file | io). With `others`, tensors
// that chaski cannot use are listed in GgufFile::others; without it they are an error.
GgufFile read_gguf(const std::string& path, bool others = false);

// "GGUF v3", "GGUF v3 in 3 files": ModelSource::kind.
std::string kind_of(const GgufFile& file);

bool is_gguf_alignment(int64_t value);

// "u32", "array of str": for messages.
std::string type_name(const Value& value);

}  // namespace chaski
