// llama-server's own endpoints: /completion, /infill, /tokenize, /detokenize, /apply-template and
// /props. The server itself answers /health, /slots and /metrics, from a snapshot.
#pragma once
#include "main/api/openai_parts.h"

namespace chaski {

void answer_llama_completion(Api& api, const Call& call, Reply& reply);
void answer_infill(Api& api, const Call& call, Reply& reply);
void answer_tokenize(Api& api, const Call& call, Reply& reply);
void answer_detokenize(Api& api, const Call& call, Reply& reply);
void answer_apply_template(Api& api, const Call& call, Reply& reply);
void answer_props(Api& api, const Call& call, Reply& reply);

// The prompt of a model that fills the hole between two texts; its answer continues `begun`.
// Throws ApiError if the model has no tokens for that.
std::vector<TokenId> hole_prompt(const ServedModel& served, const std::string& before,
                                 const std::string& after, const std::string& begun = "");

}  // namespace chaski
