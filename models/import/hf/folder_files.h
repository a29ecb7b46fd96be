// Writes the files of a Hugging Face folder: safetensors in one file or in shards, tokenizer files,
// and config.json.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

struct FolderTensor {
  std::string name, dtype;  // a dtype of safetensors
  std::vector<int64_t> shape;
  int item;                                // bytes of an element
  std::function<void(AtomicFile&)> write;  // appends bytes() to the file
  bool with_previous = false;              // belongs into the shard of the tensor before

  uint64_t bytes() const;
};

struct NamedText {
  std::string name, text;
};

struct WrittenFolder {
  bool has_tokenizer = false;
  uint64_t bytes = 0;               // of all tensors
  std::vector<std::string> stayed;  // existing tokenizer and other files that were kept
  // Code and vocabularies of the source folder that were not copied.
  std::vector<std::string> left_out;
};

// Refuses a folder that has a config.json, weights or unrelated files, is a file, or is the model
// itself.
// Throws Error(usage).
void expect_new_folder(const std::string& folder, const ModelSource& source);

// Weights of a larger folder are in shards of at most this size, except a tensor that is larger
// alone (or together with the tensor that belongs to it). The Hub's tools split at the same size.
constexpr uint64_t kShardBytes = 5'000'000'000;

// Called with the bytes of tensors that are written, and of all tensors of the folder.
using OnWritten = std::function<void(uint64_t written, uint64_t total)>;

// Files get their names when all of them are complete, config.json last. An error leaves no file,
// and no new folder; nor does a signal before the first file has its name. A later signal, or a
// kill, may leave files without config.json, which are not a model. Tokenizer files are copied if
// the source is a folder that has them, otherwise `tokenizer` is written; existing files are kept.
// `config` is the text of config.json. Throws Error(io).
WrittenFolder write_folder_files(const std::string& folder, const ModelSource& source,
                                 std::vector<FolderTensor> tensors, const std::string& config,
                                 const std::vector<NamedText>& tokenizer, const OnWritten& done,
                                 uint64_t shard_bytes = kShardBytes);

}  // namespace chaski
