#include "main/api/ollama.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/conversation/own_template.h"
#include "engine/shelf/inspection.h"
#include "main/api/embeddings.h"
#include "main/api/openai.h"
#include "main/flags/manual.h"

namespace chaski {

namespace {

constexpr int64_t kNanosecondsASecond = 1000000000;
constexpr const char* kNever = "9999-12-31T23:59:59.000000000Z";

std::string ollama_error(const ApiError& error) { return written({{"error", error.what()}}); }
std::string ollama_stream_error(const ApiError& error, int) { return ollama_error(error) + "\n"; }

std::string in_capitals(std::string text) {
  for (char& c : text) c = char(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// The format that most bytes of the weights have, and the number of weights: "Q4_K", "494.03M".
OrderedJson details_of(const ModelFacts& model) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", model.family},
          {"families", OrderedJson::array({model.family})},
          {"parameter_size", model.weights >= 1e9 ? fmt::format("{:.2f}B", model.weights / 1e9)
                                                  : fmt::format("{:.2f}M", model.weights / 1e6)},
          {"quantization_level", in_capitals(model.format)}};
}

// chaski computes no checksum of the whole file, so this one of its name and size is all there is.
std::string digest_of(const ModelState& model) {
  return fmt::format("{:064x}", std::hash<std::string>()(model.name) ^ model.facts.bytes);
}

OrderedJson ollama_model_json(const ModelState& model) {
  return {{"name", model.name},
          {"model", model.name},
          {"modified_at", time_text(model.created * kNanosecondsASecond)},
          {"size", model.facts.bytes},
          {"digest", digest_of(model)},
          {"details", details_of(model.facts)}};
}

void list_ollama_models(Api& api, const Call&, Reply& reply) {
  OrderedJson list = OrderedJson::array();
  for (const ModelState& model : api.models()) list.push_back(ollama_model_json(model));
  reply.whole(200, kJsonType, written({{"models", list}}));
}

void list_ollama_running(Api& api, const Call&, Reply& reply) {
  OrderedJson list = OrderedJson::array();
  for (const ModelState& model : api.models()) {
    if (model.kind != ModelState::Kind::loaded) continue;
    OrderedJson json = ollama_model_json(model);
    json.erase("modified_at");
    json["size"] = model.bytes;
    json["size_vram"] = model.on_device ? model.bytes : 0;
    json["expires_at"] =
        model.expires_at ? time_text(*model.expires_at * kNanosecondsASecond) : kNever;
    json["context_length"] = model.facts.context;
    list.push_back(std::move(json));
  }
  reply.whole(200, kJsonType, written({{"models", list}}));
}

// The numbers and texts of the model's file; long lists such as vocabularies are left out.
// Under GGUF's names, as ollama's clients expect them.
OrderedJson metadata_of(const Metadata& meta) {
  OrderedJson json = OrderedJson::object();
  const Metadata named = gguf_metadata(meta);
  for (const auto& [key, value] : named.all()) {
    if (const auto* text = std::get_if<std::string>(&value.data))
      json[key] = *text;
    else if (const auto* whole = std::get_if<int64_t>(&value.data))
      json[key] = *whole;
    else if (const auto* real = std::get_if<double>(&value.data))
      json[key] = *real;
  }
  return json;
}

OrderedJson capabilities_of(const ModelHeader& header) {
  OrderedJson capabilities = OrderedJson::array();
  if (header.state.embeds) capabilities.push_back("embedding");
  if (!header.state.generates) return capabilities;
  capabilities.push_back("completion");
  if (!header.tokenizer) return capabilities;
  ConversationOptions options;
  options.chat_template = header.chat_template;
  const ModelFacts& facts = header.state.facts;
  const Conversation conversation({*header.meta, *header.tokenizer, facts.context, facts.path},
                                  options);
  const OwnTemplate* own = conversation.format().own();
  if (own && own->takes_tools()) capabilities.push_back("tools");
  if (own && own->thinking_can_be_off()) capabilities.push_back("thinking");
  return capabilities;
}

void show_ollama_model(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const ModelHeader header = api.header(ollama_name(fields));
  fields.accept({"verbose", "system", "template", "options"});
  const ModelState& model = header.state;
  std::string parameters = fmt::format("num_ctx {}\n", model.facts.context);
  reply.whole(200, kJsonType,
              written({{"modelfile", "# served by chaski from " + model.facts.path + "\n"},
                       {"parameters", parameters},
                       {"template", header.meta->str("tokenizer.chat_template", "")},
                       {"details", details_of(model.facts)},
                       {"model_info", metadata_of(*header.meta)},
                       {"capabilities", capabilities_of(header)},
                       {"modified_at", time_text(model.created * kNanosecondsASecond)}}));
}

void show_ollama_version(Api&, const Call&, Reply& reply) {
  reply.whole(200, kJsonType, written({{"version", kVersion}}));
}

[[noreturn]] void refuse_with_command(const std::string& what, const std::string& command) {
  throw ApiError(501, "not_implemented_error", "not_implemented",
                 "this server does not " + what + " models: " + command);
}
std::string name_in_body(const Call& call) {
  Body body(call.body);
  const Field fields = body.fields();
  for (const char* name : {"model", "name"})
    if (const auto field = fields.find(name)) return escaped(field->text());
  return "NAME";
}
void refuse_ollama_pull(Api&, const Call& call, Reply&) {
  refuse_with_command("download", "run chaski pull " + name_in_body(call));
}
void refuse_ollama_delete(Api&, const Call& call, Reply&) {
  refuse_with_command(
      "delete", "chaski list -v shows the file of " + name_in_body(call) + ", and rm removes it");
}
void refuse_ollama_create(Api&, const Call&, Reply&) {
  refuse_with_command("create", "chaski quantize IN OUT makes one, and chaski convert IN OUT");
}
void refuse_ollama_copy(Api&, const Call&, Reply&) {
  refuse_with_command("copy", "chaski list -v shows their files, and cp copies them");
}
void refuse_ollama_push(Api&, const Call&, Reply&) {
  refuse_with_command("upload", "chaski has no command for that");
}

}  // namespace

const Dialect kOllama = {ollama_error, ollama_stream_error};

std::string time_text(int64_t nanoseconds) {
  return fmt::format("{:%FT%T}.{:09}Z", fmt::gmtime(std::time_t(nanoseconds / kNanosecondsASecond)),
                     nanoseconds % kNanosecondsASecond);
}

std::string ollama_name(const Field& fields) {
  auto name = fields.find("model");
  if (!name) name = fields.find("name");
  return name ? name->text() : "";
}

std::shared_ptr<const ServedModel> ollama_model(Api& api, const Field& fields) {
  return api.model({.name = ollama_name(fields), .keep = read_keep(fields)});
}

std::span<const Endpoint> ollama_routes() {
  static const Endpoint kRoutes[] = {
      {"POST", "/api/chat", answer_ollama_chat, kOllama},
      {"POST", "/api/generate", answer_ollama_generate, kOllama},
      {"GET", "/api/tags", list_ollama_models, kOllama, false},
      {"GET", "/api/ps", list_ollama_running, kOllama, false},
      {"POST", "/api/show", show_ollama_model, kOllama, false},
      {"GET", "/api/version", show_ollama_version, kOllama, false},
      {"POST", "/api/embed", answer_ollama_embed, kOllama},
      {"POST", "/api/embeddings", answer_ollama_embeddings, kOllama},
      {"POST", "/api/pull", refuse_ollama_pull, kOllama, false},
      {"DELETE", "/api/delete", refuse_ollama_delete, kOllama, false},
      {"POST", "/api/create", refuse_ollama_create, kOllama, false},
      {"POST", "/api/copy", refuse_ollama_copy, kOllama, false},
      {"POST", "/api/push", refuse_ollama_push, kOllama, false},
  };
  return kRoutes;
}

}  // namespace chaski
