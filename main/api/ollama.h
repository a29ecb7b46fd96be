// ollama's interface: /api/chat and /api/generate (lines of JSON), and what its clients ask about
// models: /api/tags, /api/ps, /api/show, /api/version.
#pragma once
#include "main/api/routes.h"

namespace chaski {

extern const Dialect kOllama;

void answer_ollama_chat(Api& api, const Call& call, Reply& reply);
void answer_ollama_generate(Api& api, const Call& call, Reply& reply);

// The text of the field "model" or "name"; empty if both are absent.
std::string ollama_name(const Field& fields);
// The model of that name, kept as "keep_alive" or "ttl" says.
std::shared_ptr<const ServedModel> ollama_model(Api& api, const Field& fields);
std::string time_text(int64_t nanoseconds);  // since 1970: "2026-11-25T13:02:03.000000004Z"

}  // namespace chaski
