// A model as a folder in the layout that transformers and vLLM read.
#pragma once
#include "engine/shelf/model_file.h"

namespace chaski {

// "gptq" or "awq" (models/import/hf/write_packed.h). Returns what a user should know of the folder,
// a line each.
std::vector<std::string> write_folder(const ModelSource& source, const std::string& folder,
                                      const std::string& layout, int threads,
                                      const OnProgress& progress);

}  // namespace chaski
