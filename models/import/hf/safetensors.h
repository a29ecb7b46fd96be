// The safetensors container: a JSON header and one buffer. Lists the tensors and checks that their
// bytes exist; import_hf.cpp interprets the names. Format: huggingface/safetensors, README.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ggml-like-tensor/base/mapping.h"
#include "quant/format.h"

namespace chaski {

struct SafeTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;    // slowest dimension first; empty for a scalar
  std::optional<Format> format;  // only dtypes that chaski can use: F32, F16, BF16, F8_E4M3
  const std::byte* data = nullptr;
  std::string file;   // for messages
  uint64_t size = 0;  // bytes at `data`

  std::string_view bytes() const { return {reinterpret_cast<const char*>(data), size}; }
};

struct SafetensorsFile {
  std::shared_ptr<const Mapping> mapping;
  std::vector<SafeTensor> tensors;  // in the order of their bytes
};

// Throws Error(bad_file | io).
SafetensorsFile read_safetensors(const std::string& path);

struct SafetensorsFolder {
  std::vector<std::shared_ptr<const Mapping>> mappings;
  std::vector<SafeTensor> tensors;
};

// The tensors of a folder whose names are wanted: of model.safetensors, or of the shards that
// model.safetensors.index.json lists. Index and shards must name the same tensors. Throws
// Error(bad_file | io).
SafetensorsFolder read_safetensors_folder(
    const std::string& folder, const std::function<bool(const std::string& name)>& wanted);

// Reads a whole tensor that has a format. Throws Error(bad_file) for the first number that is not
// finite.
void expect_finite(const SafeTensor& tensor);

// True for tensors of the extra layers that predict a further token, which some models have.
bool is_of_next_layer(std::string_view name);     // MiMo's names
bool is_of_further_layer(std::string_view name);  // the names of Qwen 3 Next and Qwen 3.5

std::string shape_text(const std::vector<int64_t>& shape);  // (2, 3)

// Throws if the folder has a pickle instead of `file`; the message says how to convert it.
void expect_no_pickle(const std::string& folder, const std::string& pickle,
                      const std::string& file);

}  // namespace chaski
