// EAGLE heads and layers for one token more (models/heads/eagle.h): an engine of their own, with
// sessions, pages and threads, that asks the head and the table of the model that they guess for.
#pragma once
#include <memory>
#include <string>

#include "engine/session/engine.h"

namespace chaski {

// Whether a folder holds such a head, and not just a model.
bool is_eagle(const std::string& path);
// Whether it holds a model with such a layer.
bool has_next_layer(const std::string& path);

// Throws Error(bad_file | io) for a folder that is damaged, or for another model, Error(memory),
// and Error(usage) for a target that gives no hidden rows out.
std::shared_ptr<Engine> open_eagle(const std::string& folder, std::shared_ptr<Engine> target,
                                   int sessions = 1);

}  // namespace chaski
