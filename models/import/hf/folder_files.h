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
};

// Refuses a folder that has a config.json or unrelated files, is a file, or is the model itself.
// Throws Error(usage).
void expect_new_folder(const std::string& folder, const ModelSource& source);

// A larger folder has shards of at most this size. The Hub's tools split at the same size.
constexpr uint64_t kShardBytes = 5'000'000'000;

// Files get their names when all of them are complete, config.json last. So an error or a signal
// leaves no file, and no new folder. A run that is killed may leave an incomplete folder, which is
// not a model. Tokenizer files are copied if the source is a folder that has them, otherwise
// `tokenizer` is written; existing files are kept. `config` is called after the tensors were
// written. Throws Error(io). `done` is called with the bytes just written.
WrittenFolder write_folder_files(const std::string& folder, const ModelSource& source,
                                 std::vector<FolderTensor> tensors,
                                 const std::function<std::string()>& config,
                                 const std::vector<NamedText>& tokenizer,
                                 const std::function<void(uint64_t bytes)>& done,
                                 uint64_t shard_bytes = kShardBytes);

}  // namespace chaski
