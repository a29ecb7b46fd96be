// The config.json of a model that was not read from a Hugging Face folder: the keys of its
// architecture, in the places where importers read them.
#pragma once
#include <string_view>

// One JSON type everywhere, as in json_file.cpp, so that one parser is compiled.
#include <nlohmann/json.hpp>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

// For llama (Mistral too), qwen2 and qwen3. `layout` is for messages. Throws Error(bad_file) for
// another architecture, and for a value that config.json cannot say.
nlohmann::ordered_json config_of(const ModelSource& source, std::string_view layout);

}  // namespace chaski
