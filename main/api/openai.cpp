#include "main/api/openai.h"

#include "main/api/embeddings.h"

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

// "status" as llama-server's router has it.
OrderedJson model_json(const ModelState& model) {
  OrderedJson status = {{"value", word_of(model.kind)}}, capabilities = OrderedJson::array();
  if (model.generates) capabilities.push_back("completion");
  if (model.embeds) capabilities.push_back("embedding");
  if (model.kind == ModelState::Kind::loading) status["progress"] = model.progress;
  if (model.last_error) status["error"] = *model.last_error;
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "chaski"},
          {"capabilities", capabilities},
          {"meta",
           {{"n_ctx", model.facts.context},
            {"n_vocab", model.facts.vocab},
            {"size", model.facts.bytes}}},
          {"status", status}};
}

void list_models(Api& api, const Call&, Reply& reply) {
  OrderedJson json = {{"object", "list"}, {"data", OrderedJson::array()}};
  for (const ModelState& model : api.models()) json["data"].push_back(model_json(model));
  reply.whole(200, kJsonType, written(json));
}

void show_model(Api& api, const Call& call, Reply& reply) {
  reply.whole(200, kJsonType, written(model_json(api.header(std::string(call.path)).state)));
}

void refuse_rerank(Api& api, const Call& call, Reply&) {
  Body body(call.body);
  const auto served = model_of(api, body.fields());
  throw ApiError(400, "invalid_request_error", "unsupported_model",
                 served->name + " generates text, expected a reranker, which chaski cannot run yet",
                 "model");
}

}  // namespace

std::span<const Endpoint> openai_routes() {
  static const Endpoint kRoutes[] = {
      {"POST", "/v1/chat/completions", answer_openai_chat, kOpenAi},
      {"POST", "/v1/completions", answer_openai_completions, kOpenAi},
      {"POST", "/v1/responses", answer_openai_responses, kResponses},
      {"GET", "/v1/responses/", get_openai_response, kOpenAi, false},
      {"DELETE", "/v1/responses/", delete_openai_response, kOpenAi, false},
      {"GET", "/v1/models", list_models, kOpenAi, false},
      {"GET", "/v1/models/", show_model, kOpenAi, false},
      {"POST", "/v1/embeddings", answer_openai_embeddings, kOpenAi},
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
