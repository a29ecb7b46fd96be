// What bodies of /api/chat and /api/generate ask for. Uses no model. All functions throw ApiError.
#pragma once
#include "main/api/openai_parts.h"

namespace chaski {

// `options` has the same parameters as /v1/chat/completions, by llama.cpp's names. `context`: the
// most tokens that `num_ctx` may ask for.
void read_ollama_options(const Field& fields, const DefaultSettings& defaults, int context,
                         AnswerSettings& settings);
void read_ollama_format(const Field& fields, AnswerSettings& settings);
bool read_think(const Field& fields, bool otherwise);
void refuse_images(const Field& fields);
bool is_streamed(const Field& fields);
void accept_ollama_fields(const Field& fields);

// What only /api/generate has.
struct GenerateFields {
  std::string system, suffix;
  bool raw = false;
};
GenerateFields read_generate_fields(const Field& fields);

}  // namespace chaski
