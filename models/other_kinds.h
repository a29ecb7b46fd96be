// Models that generate no text, which chaski knows by the name of their architecture. Messages then
// say what the model is instead of suggesting an architecture with a similar name.
#pragma once
#include <string>
#include <string_view>

namespace chaski {

// What a model with this architecture is, such as "an embedding model". `name` is that of GGUF or
// of config.json. Empty for all other names.
std::string_view other_kind(std::string_view name);

// Throws Error(bad_file) if other_kind() knows the name. `path` is the model's file or folder.
void refuse_other_kind(const std::string& path, const std::string& name);

}  // namespace chaski
