// What an importer returns and the .quipu writer takes: metadata, and tensors that produce their
// bytes when asked. Nothing is read before it is needed, so converting a file needs the memory of
// one tensor.
//
// Tensor names: tensors() of the architecture's file lists them. Those of layer N, which counts
// from 0, begin with "layer.N."; a bias is the weight's name + ".bias".
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ggml-like-tensor/file/metadata.h"
#include "quant/format.h"

namespace chaski {

// rows x cols; a vector (norm weight, bias) has rows == 1 and is never tiled: see bytes().
struct TensorInfo {
  std::string name;
  Format format = Format::f32;
  int64_t rows = 1, cols = 0;

  bool tiled() const { return rows > 1; }
  // Bytes in memory and on disk. Tiled: ceil(rows / 16) strips of strip_bytes(format, cols). A
  // vector: row_bytes(format, cols).
  uint64_t bytes() const;
};

// Reads strips [first, last) of a tiled tensor (16 rows each, the last one padded with zeros) into
// dst, which holds (last - first) * strip_bytes. A vector is read whole: first = 0, last = 1.
// Called from several threads at once, each with its own range; throws Error(bad_file | io).
using ReadStrips = std::function<void(int64_t first, int64_t last, std::byte* dst)>;

struct TensorSource {
  TensorSource() = default;
  // Not an aggregate: when the second member of one throws, gcc 12 may destroy the first twice.
  TensorSource(TensorInfo info, ReadStrips read) : info(std::move(info)), read(std::move(read)) {}

  TensorInfo info;
  ReadStrips read;
};

// A tensor that chaski has no format for, or no such shape: to be shown, not to be read.
struct UnreadTensor {
  std::string name, format;    // as the file calls them
  std::vector<int64_t> shape;  // slowest first
};

struct ModelSource {
  std::string path;  // as given by the user
  std::string kind;  // "GGUF v3", "Hugging Face folder", "llama2.c v0", "quipu v1"
  Metadata meta;
  std::vector<TensorSource> tensors;
  std::shared_ptr<const void> storage;  // keeps mappings alive
  // Where tensors are read from mapped files: what was read of them need not stay in memory. From
  // any thread.
  std::function<void()> let_go = {};
  // Where the file has sums of its tensors: reads and checks all, Error(bad_file) names the first
  // that does not hold.
  std::function<void(int threads)> verify = {};

  std::vector<UnreadTensor> unread = {};  // look_at_model() alone finds any

  const TensorSource* find(const std::string& name) const;
};

}  // namespace chaski
