// What an importer returns and the .quipu writer takes: metadata, and tensors that produce their
// bytes when asked. Nothing is read before it is needed, so converting a file needs the memory of
// one tensor.
//
// tensors() of the architecture's file lists the tensor names. Names of layer N, which counts from
// 0, begin with "layer.N.". A bias is called like its weight + ".bias".
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

// A matrix of rows x cols. A vector (norm weight, bias) has rows == 1 and is never tiled: see
// bytes().
struct TensorInfo {
  std::string name;
  Format format = Format::f32;
  int64_t rows = 1, cols = 0;

  bool tiled() const { return rows > 1; }
  // Bytes in memory and on disk. Tiled: ceil(rows / 16) strips of strip_bytes(format, cols). A
  // vector: row_bytes(format, cols).
  uint64_t bytes() const;
};

// Reads strips [first, last) of a tiled tensor into dst, which has (last - first) * strip_bytes. A
// strip is 16 rows; the last one is padded with zeros. A vector is read as a whole: first = 0, last
// = 1. Called from several threads at once, each with its own range. Throws Error(bad_file | io).
using ReadStrips = std::function<void(int64_t first, int64_t last, std::byte* dst)>;

struct TensorSource {
  TensorSource() = default;
  // Not an aggregate: if the second member of an aggregate throws, gcc 12 may destroy the first
  // twice.
  TensorSource(TensorInfo info, ReadStrips read) : info(std::move(info)), read(std::move(read)) {}

  TensorInfo info;
  ReadStrips read;
};

// A tensor whose format or shape chaski does not support. It can be shown, but not read.
struct UnreadTensor {
  std::string name, format;    // as the file names them
  std::vector<int64_t> shape;  // slowest first
};

struct ModelSource {
  std::string path;  // as given by the user
  std::string kind;  // "GGUF v3", "Hugging Face folder", "llama2.c v0", "quipu v1"
  Metadata meta;
  std::vector<TensorSource> tensors;
  std::shared_ptr<const void> storage;  // keeps mappings alive
  // Set if tensors are read from mapped files. Removes what was read of them from memory. May be
  // called from any thread.
  std::function<void()> drop_pages = {};
  // Set if the file has checksums of its tensors. Reads and checks all; Error(bad_file) names the
  // first tensor with a wrong checksum.
  std::function<void(int threads)> verify = {};

  std::vector<UnreadTensor> unread = {};  // filled only by look_at_model()

  const TensorSource* find(const std::string& name) const;
};

}  // namespace chaski
