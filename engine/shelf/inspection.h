// What is in a model file, what it needs, and whether chaski runs it: also for files that it does
// not run.
#pragma once
#include <string>
#include <vector>

#include "ggml-like-tensor/base/nearest.h"  // for the names of flags too
#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

struct Need {
  std::string what, name;  // "architecture", "qwen2"
  bool here;               // chaski has it
  std::string nearest;     // that it has, where it lacks this one; may be empty
};

struct Inspection {
  ModelSource source;
  std::vector<Need> needs;
  std::string refusal;  // why chaski does not run it, in a line; empty: it does
};

// Takes what open_model() in model_file.h takes, and throws what it throws where the file is not
// one that could be a model, is damaged or cannot be read.
Inspection inspect_model(const std::string& path, const std::string& tokenizer);
// Why chaski does not run what lies there, as far as its header shows; empty: it does.
std::string refusal_of(const std::string& path);

}  // namespace chaski
