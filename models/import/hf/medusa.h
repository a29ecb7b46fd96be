// A folder of Medusa heads as their authors publish them: config.json and
// medusa_lm_head.safetensors.
#pragma once
#include <string>

#include "ggml-like-tensor/file/model_source.h"
#include "models/heads/medusa.h"

namespace chaski {

// Whether a folder holds such heads, and not a model. Of what cannot be read: no.
bool holds_medusa(const std::string& path);

// Their tensors for a model of heads.dim and heads.vocab, which is called `target` in error lines;
// heads.heads and heads.blocks are filled in. Throws Error(bad_file | io) naming the file, the
// field, what was found and what was expected.
ModelSource import_medusa(const std::string& folder, MedusaHeads& heads, const std::string& target);

}  // namespace chaski
