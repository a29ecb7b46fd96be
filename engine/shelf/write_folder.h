// Writes a model as a folder in a layout that transformers and vLLM read.
#pragma once
#include "engine/shelf/model_file.h"

namespace chaski {

// `layout` is "gptq" or "awq" (models/import/hf/write_packed.h). Returns notes for the user, one
// line each.
std::vector<std::string> write_folder(const ModelSource& source, const std::string& folder,
                                      const std::string& layout, int threads,
                                      const OnProgress& progress);

}  // namespace chaski
