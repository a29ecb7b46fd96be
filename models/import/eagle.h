// Folders of EAGLE heads as their authors publish them: config.json and model.safetensors.
#pragma once
#include <string>

#include "ggml-like-tensor/file/model_source.h"
#include "models/eagle.h"

namespace chaski {

// Whether a folder holds such a head, and not a model. Of what cannot be read: no.
bool holds_eagle(const std::string& path);
// Of such a folder: whether it holds an EAGLE-3 head. Throws Error(bad_file | io).
bool holds_eagle3(const std::string& path);

// Reads the head's keys and which tokens it knows, and returns its tensors. Throws Error(bad_file |
// io) naming the file, the field, what was found and what was expected.
ModelSource import_eagle(const std::string& folder, EagleHead& eagle);

}  // namespace chaski
