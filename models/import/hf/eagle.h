// Folders of heads that models/heads/eagle.h knows, as their authors publish them: config.json, and
// model.safetensors or its parts.
#pragma once
#include <string>

#include "ggml-like-tensor/file/model_source.h"
#include "models/heads/eagle.h"

namespace chaski {

// next_layer: also where the model that it belongs to lies in the same folder.
enum class EagleKind { none, eagle1, eagle3, next_layer };
// Of what cannot be read: none.
EagleKind eagle_kind(const std::string& path);

// Reads the head's keys and which tokens it knows, and returns its tensors. Throws Error(bad_file |
// io) naming the file, the field, what was found and what was expected.
ModelSource import_eagle(const std::string& folder, EagleHead& eagle);

}  // namespace chaski
