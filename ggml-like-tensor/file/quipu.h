// The .quipu file: one little-endian file that is mapped and run as it is.
//
//   offset 0   magic "QUIPU\0\0\1" (the last byte is the version), u64 header bytes, u64 XXH3-64 of
//              the header that follows
//   header     u64 n_values, n_values x (str key, value), u64 n_tensors, n_tensors x (str name, u32
//              format, u32 layout 0 row | 1, 2 tile, u64 rows, u64 cols, u64 offset, u64 bytes, u64
//              XXH3-64)
//   data       tensors at multiples of 64 bytes, zeros between
// Strings are u64 length + bytes; a value is u32 type + payload, an array u32 type array, u32
// element type, u64 count, payloads.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

// A tensor in memory, in the layout kernels read. The bytes belong to Weights.
struct Weight {
  TensorInfo info;
  const std::byte* data = nullptr;
};

// The tensors and metadata of one model, mapped or in memory. Immutable; shared by every session.
class Weights {
 public:
  std::string path, kind;
  Metadata meta;
  std::vector<Weight> tensors;
  std::shared_ptr<const void> storage;
  std::string state;           // of the mapped file (Mapping::state); empty: there is none
  std::vector<uint64_t> sums;  // XXH3-64 of each tensor as the file has it; empty: it has none

  const Weight* find(const std::string& name) const;
  uint64_t bytes() const;  // sum over tensors
};

bool is_quipu(const std::string& path);

// Maps the file and checks header and table: checksum, names, shapes, ranges; not the tensors' own
// sums (verify reads everything). Throws Error(bad_file | io).
std::shared_ptr<const Weights> open_quipu(const std::string& path);
// linked-in; bytes must stay
std::shared_ptr<const Weights> open_quipu(const std::string& name,
                                          std::span<const std::byte> bytes);

// Reads everything: the first tensor whose bytes do not match their sum is named in
// an Error(bad_file).
void verify(const Weights& weights, int threads);

// A source over an open file, so that .quipu is an input of convert and quantize like any other.
ModelSource source_of(std::shared_ptr<const Weights> weights);

// Reads every tensor into memory. `threads` share the work; the bytes do not depend on them.
std::shared_ptr<const Weights> load(const ModelSource& source, int threads);

// Called with (tensor index, bytes written so far, bytes in all); may throw to stop.
using Progress = std::function<void(size_t, uint64_t, uint64_t)>;

// Writes, syncs, reads back and compares the sums, renames. The old file is whole until the new one
// is; same input, same bytes out, whatever the number of threads.
// `finish` may put values into the metadata that are known when all data is written, in place of
// values that take as many bytes.
void write_quipu(const std::string& path, const ModelSource& source, int threads,
                 const Progress& progress = {}, const std::function<void(Metadata&)>& finish = {});

}  // namespace chaski
