// Imports a folder of Medusa heads as their authors publish them: config.json and
// medusa_lm_head.safetensors.
#pragma once
#include <string>

#include "ggml-like-tensor/file/model_source.h"
#include "models/heads/medusa.h"
#include "models/import/hf/heads.h"

namespace chaski {

// Returns the tensors of heads for a model of heads.dim columns and heads.vocab tokens, and sets
// heads.heads and heads.blocks. `target` names the model in errors. Throws Error(bad_file | io)
// naming the file, the field, what was found and what was expected.
ModelSource import_medusa(const HeadsFolder& folder, MedusaHeads& heads, const std::string& target);

}  // namespace chaski
