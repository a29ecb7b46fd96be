// EAGLE heads and layers for one more token (models/heads/eagle.h): each is an engine with
// sessions, pages and threads. It uses the output head and the token table of its target, the model
// whose tokens it drafts.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "engine/session/engine.h"

namespace chaski {

class HeadsFolder;

// Whether a folder or GGUF file holds a layer for one more token of the model with these keys. A
// whole model of another size that has such a layer is a draft model, and its layer is not used.
bool has_next_layer(const HeadsFolder& found, const std::function<Metadata()>& target);
bool has_next_layer(const std::string& path, const std::function<Metadata()>& target);

// Throws Error(bad_file | io) for a folder that is damaged or made for another model,
// Error(memory), and Error(usage) for a target whose hidden states cannot be read.
std::shared_ptr<Engine> open_eagle(const HeadsFolder& folder, std::shared_ptr<Engine> target,
                                   int sessions = 1);

}  // namespace chaski
