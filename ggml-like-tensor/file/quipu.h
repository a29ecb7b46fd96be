// The .quipu file: one little-endian file that is mapped and run as it is.
//
//   offset 0   magic "QUIPU\0\0\1" (the last byte is the version), u64 header bytes, u64 XXH3-64 of
//              the header that follows.
//   header     u64 n_values, n_values x (str key, value), u64 n_tensors, n_tensors x tensor.
//   data       bytes of the tensors at multiples of 64 bytes, zeros between.
// A tensor of the header is str name, u32 format, u32 layout, u64 rows, u64 cols, u64 offset, u64
// bytes, u64 XXH3-64. Layout 0 is row by row; 1 and 2 are versions of the format's tile layout.
// A string is a u64 length + bytes. A value is a u32 type + payload. An array is u32 type array,
// u32 element type, u64 count, payloads.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

class Mapping;

// A tensor in memory, in the layout that kernels read. Weights owns the bytes.
struct Weight {
  TensorInfo info;
  const std::byte* data = nullptr;
};

// The tensors and metadata of one model, mapped or in memory. Immutable; all sessions share it.
class Weights {
 public:
  std::string path, kind;
  Metadata meta;
  std::vector<Weight> tensors;
  std::shared_ptr<const void> storage;
  std::string state;  // of the mapped file (Mapping::state); empty if not mapped
  std::shared_ptr<const Mapping> mapping;  // the mapped file, or null
  std::vector<uint64_t> sums;              // XXH3-64 of each tensor in the file; may be empty

  const Weight* find(const std::string& name) const;
  uint64_t bytes() const;  // sum over tensors
};

bool is_quipu(const std::string& path);

// Maps the file and checks header and table: checksum, names, shapes, ranges. It does not check the
// tensors' own checksums, because verify() has to read everything. Throws Error(bad_file | io).
std::shared_ptr<const Weights> open_quipu(const std::string& path);
// Opens a model that is linked into the program; the bytes must stay in place.
std::shared_ptr<const Weights> open_quipu(const std::string& name,
                                          std::span<const std::byte> bytes);

// Reads everything. Error(bad_file) names the first tensor whose bytes do not match their checksum.
void verify(const Weights& weights, int threads);

// A source over an open file, so that convert and quantize take .quipu like any other input.
ModelSource source_of(std::shared_ptr<const Weights> weights);
// The same without the metadata, of which a vocabulary takes megabytes.
ModelSource tensors_of(std::shared_ptr<const Weights> weights);

// Reads every tensor into memory, with `threads` threads. The bytes do not depend on their number.
std::shared_ptr<const Weights> load(const ModelSource& source, int threads);

// Called with (tensor index, bytes written so far, bytes in all). May throw to stop.
using Progress = std::function<void(size_t, uint64_t, uint64_t)>;

// Writes the file, syncs it, reads it back, compares the checksums, and renames it. The old file is
// complete until the new one is. The same input gives the same bytes with any number of threads.
// `finish` may replace values in the metadata that are known only after all data is written; the
// new values must take as many bytes.
void write_quipu(const std::string& path, const ModelSource& source, int threads,
                 const Progress& progress = {}, const std::function<void(Metadata&)>& finish = {});
// The same for an open model, without a copy of its metadata.
void write_quipu(const std::string& path, const std::shared_ptr<const Weights>& weights,
                 int threads);

}  // namespace chaski
