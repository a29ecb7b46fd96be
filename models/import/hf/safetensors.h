// The safetensors container: a JSON header over one buffer. Says which tensors there are and that
// their bytes are there; the names are import_hf.cpp's business. Format: huggingface/safetensors,
// README.
#pragma once
#include <cstddef>
#include <cstdint>
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
  std::vector<int64_t> shape;    // slowest first; empty for a scalar
  std::optional<Format> format;  // of the dtypes chaski can use: F32, F16, BF16, F8_E4M3
  const std::byte* data = nullptr;
  std::string file;  // for error lines
};

struct SafetensorsFile {
  std::shared_ptr<const Mapping> mapping;
  std::vector<SafeTensor> tensors;  // in the order of their bytes
};

// Throws Error(bad_file | io).
SafetensorsFile read_safetensors(const std::string& path);

// Reads all of a tensor that has a format. Throws Error(bad_file) of the first number that is not
// finite.
void expect_finite(const SafeTensor& tensor);

// Whether it is of a layer that predicts one token more, as some models have it beside their own.
bool is_of_next_layer(std::string_view name);

std::string shape_text(const std::vector<int64_t>& shape);  // (2, 3)

// Where a folder has the pickle and not the file that it could be: the line says how to make it.
void expect_no_pickle(const std::string& folder, const std::string& pickle,
                      const std::string& file);

}  // namespace chaski
