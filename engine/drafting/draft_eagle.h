// EAGLE heads and layers for one more token (models/heads/eagle.h): each is an engine with
// sessions, pages and threads. It uses the output head and the token table of its target, the model
// whose tokens it drafts.
#pragma once
#include <memory>
#include <string>

#include "engine/session/engine.h"

namespace chaski {

class HeadsFolder;

// Whether a folder holds a model with such a layer.
bool has_next_layer(const std::string& path);

// Throws Error(bad_file | io) for a folder that is damaged or made for another model,
// Error(memory), and Error(usage) for a target whose hidden states cannot be read.
std::shared_ptr<Engine> open_eagle(const HeadsFolder& folder, std::shared_ptr<Engine> target,
                                   int sessions = 1);

}  // namespace chaski
