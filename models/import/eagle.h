// A folder of an EAGLE head as its authors publish it: config.json and model.safetensors.
#pragma once
#include <string>

#include "ggml-like-tensor/file/model_source.h"
#include "models/eagle.h"

namespace chaski {

// Whether a folder holds such a head, and not a model. Of what cannot be read: no.
bool holds_eagle(const std::string& path);

// Reads the head's keys, and returns its tensors. Throws Error(bad_file | io) naming the file, the
// field, what was found and what was expected.
ModelSource import_eagle(const std::string& folder, Eagle& eagle);

}  // namespace chaski
