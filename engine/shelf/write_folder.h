// Writes a model as a folder that transformers, vLLM and SGLang read.
#pragma once
#include <optional>

#include "engine/shelf/model_file.h"

namespace chaski {

struct FolderReport {
  std::vector<std::string> notes;  // for the user, one line each
  std::optional<int64_t> rounded;  // with bf16 and fp8: weights in bf16 that were rounded
  std::optional<double> error;     // with fp8: mean relative squared error of the matrices
};

// `layout` is "gptq", "awq" (models/import/hf/write_packed.h), "bf16" or "fp8" (write_floats.h).
FolderReport write_folder(const ModelSource& source, const std::string& folder,
                          const std::string& layout, int threads, const OnProgress& progress);

}  // namespace chaski
