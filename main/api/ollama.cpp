#include "main/api/ollama.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/conversation/own_template.h"
#include "main/api/openai.h"
#include "main/flags/manual.h"

namespace chaski {

namespace {

constexpr int64_t kNanosecondsASecond = 1000000000;

std::string ollama_error(const ApiError& error) { return written({{"error", error.what()}}); }
std::string ollama_stream_error(const ApiError& error, int) { return ollama_error(error) + "\n"; }

std::string in_capitals(std::string text) {
  for (char& c : text) c = char(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// The format that most bytes of the weights have, and the number of weights: "Q4_K", "494.03M".
OrderedJson details_of(const Engine& engine) {
  std::map<std::string, uint64_t> bytes;
  double weights = 0;
  for (const auto& tensor : engine.weights()->tensors) {
    bytes[std::string(info(tensor.info.format).name)] += tensor.info.bytes();
    weights += double(tensor.info.rows) * double(tensor.info.cols);
  }
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& format) { return format.second; });
  const std::string family = engine.meta().str("general.architecture", "");
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", family},
          {"families", OrderedJson::array({family})},
          {"parameter_size", weights >= 1e9 ? fmt::format("{:.2f}B", weights / 1e9)
                                            : fmt::format("{:.2f}M", weights / 1e6)},
          {"quantization_level", most == bytes.end() ? "" : in_capitals(most->first)}};
}

// chaski computes no checksum of the whole file, so this one of its name and size is all there is.
std::string digest_of(const ServedModel& served) {
  return fmt::format("{:064x}",
                     std::hash<std::string>()(served.name) ^ served.engine().file_bytes());
}

OrderedJson ollama_model_json(const ServedModel& served) {
  return {{"name", served.name},
          {"model", served.name},
          {"modified_at", time_text(served.created * kNanosecondsASecond)},
          {"size", served.engine().file_bytes()},
          {"digest", digest_of(served)},
          {"details", details_of(served.engine())}};
}

void list_ollama_models(Api& api, const Call&, Reply& reply) {
  OrderedJson list = OrderedJson::array();
  for (const auto& served : api.models()) list.push_back(ollama_model_json(*served));
  reply.whole(200, kJsonType, written({{"models", list}}));
}

void list_ollama_running(Api& api, const Call&, Reply& reply) {
  OrderedJson list = OrderedJson::array();
  for (const auto& served : api.models()) {
    OrderedJson json = ollama_model_json(*served);
    json.erase("modified_at");
    const bool on_cpu = served->engine().device() == "cpu";
    json["size_vram"] = on_cpu ? 0 : served->engine().file_bytes();
    json["context_length"] = served->engine().context_length();
    list.push_back(std::move(json));
  }
  reply.whole(200, kJsonType, written({{"models", list}}));
}

// The numbers and texts of the model's file; long lists such as vocabularies are left out.
OrderedJson metadata_of(const Engine& engine) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [key, value] : engine.meta().all()) {
    if (const auto* text = std::get_if<std::string>(&value.data))
      json[key] = *text;
    else if (const auto* whole = std::get_if<int64_t>(&value.data))
      json[key] = *whole;
    else if (const auto* real = std::get_if<double>(&value.data))
      json[key] = *real;
  }
  return json;
}

void show_ollama_model(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const auto served = ollama_model(api, fields);
  fields.accept({"verbose", "system", "template", "options"});
  const Engine& engine = served->engine();
  ChatRequest request;
  request.messages = {{"user", "Hello"}};
  const auto conversation = conversation_of(*served, request);
  const OwnTemplate* own = conversation->format().own();
  OrderedJson capabilities = OrderedJson::array({"completion"});
  if (own && own->takes_tools()) capabilities.push_back("tools");
  if (own && own->thinking_can_be_off()) capabilities.push_back("thinking");
  std::string parameters = fmt::format("num_ctx {}\n", engine.context_length());
  reply.whole(200, kJsonType,
              written({{"modelfile", "# served by chaski from " + engine.path() + "\n"},
                       {"parameters", parameters},
                       {"template", engine.meta().str("tokenizer.chat_template", "")},
                       {"details", details_of(engine)},
                       {"model_info", metadata_of(engine)},
                       {"capabilities", capabilities},
                       {"modified_at", time_text(served->created * kNanosecondsASecond)}}));
}

void show_ollama_version(Api&, const Call&, Reply& reply) {
  reply.whole(200, kJsonType, written({{"version", kVersion}}));
}

void refuse_ollama_embedding(Api& api, const Call& call, Reply&) {
  Body body(call.body);
  const auto served = ollama_model(api, body.fields());
  throw ApiError(400, "invalid_request_error", "unsupported_model",
                 served->name +
                     " generates text, expected a model for embeddings (such as bge or "
                     "nomic-embed)",
                 "model");
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

std::shared_ptr<const ServedModel> ollama_model(Api& api, const Field& fields) {
  constexpr std::string_view kLatest = ":latest";
  auto name = fields.find("model");
  if (!name) name = fields.find("name");
  std::string text = name ? name->text() : "";
  if (text.ends_with(kLatest)) text.resize(text.size() - kLatest.size());
  return api.model(text);
}

std::span<const Route> ollama_routes() {
  static const Route kRoutes[] = {
      {"POST", "/api/chat", answer_ollama_chat, kOllama},
      {"POST", "/api/generate", answer_ollama_generate, kOllama},
      {"GET", "/api/tags", list_ollama_models, kOllama, false},
      {"GET", "/api/ps", list_ollama_running, kOllama, false},
      {"POST", "/api/show", show_ollama_model, kOllama, false},
      {"GET", "/api/version", show_ollama_version, kOllama, false},
      {"POST", "/api/embed", refuse_ollama_embedding, kOllama, false},
      {"POST", "/api/embeddings", refuse_ollama_embedding, kOllama, false},
      {"POST", "/api/pull", refuse_ollama_pull, kOllama, false},
      {"DELETE", "/api/delete", refuse_ollama_delete, kOllama, false},
      {"POST", "/api/create", refuse_ollama_create, kOllama, false},
      {"POST", "/api/copy", refuse_ollama_copy, kOllama, false},
      {"POST", "/api/push", refuse_ollama_push, kOllama, false},
  };
  return kRoutes;
}

}  // namespace chaski
