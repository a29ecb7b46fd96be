#include "main/api/openai.h"

namespace chaski {

namespace {

// Errors of a stream of /v1/responses are events of their own.
std::string responses_error_body(const ApiError& error) { return written(openai_error(error)); }
std::string responses_stream_error(const ApiError& error, int parts) {
  OrderedJson json = {{"type", "error"}, {"sequence_number", parts}};
  const OrderedJson inner = openai_error(error)["error"];
  for (const char* name : {"code", "message", "param"}) json[name] = inner[name];
  return sent_event("error", json);
}
constexpr Dialect kResponses = {responses_error_body, responses_stream_error};

OrderedJson model_json(const ServedModel& served) {
  return {{"id", served.name},
          {"object", "model"},
          {"created", served.created},
          {"owned_by", "chaski"},
          {"meta",
           {{"n_ctx", served.engine().context_length()},
            {"n_vocab", served.engine().vocab_size()},
            {"size", served.engine().file_bytes()}}}};
}

void list_models(Api& api, const Call&, Reply& reply) {
  OrderedJson json = {{"object", "list"}, {"data", OrderedJson::array()}};
  for (const auto& served : api.models()) json["data"].push_back(model_json(*served));
  reply.whole(200, kJsonType, written(json));
}

void show_model(Api& api, const Call& call, Reply& reply) {
  reply.whole(200, kJsonType, written(model_json(*api.model(std::string(call.path)))));
}

[[noreturn]] void refuse_kind(Api& api, const Call& call, const char* kind) {
  Body body(call.body);
  const auto served = model_of(api, body.fields());
  throw ApiError(400, "invalid_request_error", "unsupported_model",
                 served->name + " generates text, expected " + kind, "model");
}
void refuse_embeddings(Api& api, const Call& call, Reply&) {
  refuse_kind(api, call, "a model for embeddings (such as bge or nomic-embed)");
}
void refuse_rerank(Api& api, const Call& call, Reply&) {
  refuse_kind(api, call, "a reranker (such as bge-reranker)");
}

}  // namespace

std::span<const Route> openai_routes() {
  static const Route kRoutes[] = {
      {"POST", "/v1/chat/completions", answer_openai_chat, kOpenAi},
      {"POST", "/v1/completions", answer_openai_completions, kOpenAi},
      {"POST", "/v1/responses", answer_openai_responses, kResponses},
      {"GET", "/v1/responses/", get_openai_response, kOpenAi, false},
      {"DELETE", "/v1/responses/", delete_openai_response, kOpenAi, false},
      {"GET", "/v1/models", list_models, kOpenAi, false},
      {"GET", "/v1/models/", show_model, kOpenAi, false},
      {"POST", "/v1/embeddings", refuse_embeddings, kOpenAi, false},
      {"POST", "/v1/rerank", refuse_rerank, kOpenAi, false},
      {"POST", "/v1/chat/completions/input_tokens", count_chat_tokens, kOpenAi, false},
      {"POST", "/chat/completions", answer_openai_chat, kOpenAi},
      {"POST", "/chat/completions/input_tokens", count_chat_tokens, kOpenAi, false},
      {"POST", "/responses", answer_openai_responses, kResponses},
      {"GET", "/models", list_models, kOpenAi, false},
  };
  return kRoutes;
}

}  // namespace chaski
