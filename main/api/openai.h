// OpenAI's interfaces: /v1/chat/completions, /v1/completions, /v1/responses, /v1/models, and
// /v1/rerank, which is refused.
#pragma once
#include "main/api/openai_parts.h"

namespace chaski {

void answer_openai_chat(Api& api, const Call& call, Reply& reply);
void count_chat_tokens(Api& api, const Call& call, Reply& reply);
void answer_openai_completions(Api& api, const Call& call, Reply& reply);
void answer_openai_responses(Api& api, const Call& call, Reply& reply);
void get_openai_response(Api& api, const Call& call, Reply& reply);
void delete_openai_response(Api& api, const Call& call, Reply& reply);

// The model of the field "model", which may be absent, kept as "ttl" or "keep_alive" says.
std::shared_ptr<const ServedModel> model_of(Api& api, const Field& fields);
// The logprobs of /v1/chat/completions.
void read_log_probabilities(const Field& fields, AnswerSettings& settings);
// A number of answers, 1 if the field is absent.
int read_answers(const Api& api, const Field& fields, const char* name);

}  // namespace chaski
