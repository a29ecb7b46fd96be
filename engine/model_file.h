// Model files as a user handles them: open anything, convert, verify, inspect. No running of models
// here.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

// .quipu by mapping, anything else through models/import/import.h. Empty path: the bundled model.
ModelSource open_source(const std::string& path, const std::string& tokenizer = "");

struct FileProgress {
  std::string tensor;
  uint64_t done = 0, total = 0;  // bytes of output
};
using OnProgress = std::function<void(const FileProgress&)>;

// Reads all of a source that has sums (ModelSource::verify), on all cores.
void verify_source(const ModelSource& source);

// To .quipu, or to GGUF when `out` ends in .gguf. Refuses out == in (name, link) before a byte is
// written.
void convert_model(const std::string& in, const std::string& out, const std::string& tokenizer,
                   int threads, const OnProgress& progress);

}  // namespace chaski
