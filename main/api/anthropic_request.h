// What a body of Anthropic's interface asks for. Uses no model.
#pragma once
#include "main/api/openai_parts.h"

namespace chaski {

// The conversation, tools and thinking: all that count_tokens needs. Throws ApiError.
ChatRequest read_anthropic(const Api& api, const DefaultSettings& defaults, Body& body);
// The fields that decide how the answer is generated.
void read_anthropic_settings(const Api& api, const DefaultSettings& defaults, const Field& fields,
                             ChatRequest& request);

}  // namespace chaski
