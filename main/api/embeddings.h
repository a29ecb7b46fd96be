// /v1/embeddings, and ollama's /api/embed and /api/embeddings.
#pragma once
#include "main/api/routes.h"

namespace chaski {

void answer_openai_embeddings(Api& api, const Call& call, Reply& reply);
void answer_ollama_embed(Api& api, const Call& call, Reply& reply);
void answer_ollama_embeddings(Api& api, const Call& call, Reply& reply);

}  // namespace chaski
