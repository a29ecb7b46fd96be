// Imports the folder of a draft head (models/heads) as its authors publish it: config.json, and
// model.safetensors or its shards.
#pragma once
#include "ggml-like-tensor/file/model_source.h"
#include "models/heads/delta_next.h"
#include "models/import/hf/heads.h"

namespace chaski {

// Reads the keys of the head and which tokens it knows, and returns its tensors. Throws
// Error(bad_file | io) naming the file, the field, what was found and what was expected.
ModelSource import_eagle(const HeadsFolder& folder, EagleHead& eagle);
// The same for a layer that is one more layer of its model.
ModelSource import_delta_next(const HeadsFolder& folder, DeltaNext& layer);

}  // namespace chaski
