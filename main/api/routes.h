// The endpoints of all dialects in one table, and what their functions work with.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "main/api/model_state.h"
#include "main/api/request.h"

namespace chaski {

// Conversations of /v1/responses, which a later request continues by id. Thread-safe.
class StoredResponses {
 public:
  static constexpr size_t kMost = 1000, kMostBytes = size_t(64) << 20;

  void keep(const std::string& id, std::vector<ChatMessage> messages, std::string response);
  // Nothing if the id is unknown, or was dropped because newer ones took its place.
  std::optional<std::vector<ChatMessage>> messages(const std::string& id);
  std::optional<std::string> response(const std::string& id);
  bool remove(const std::string& id);

 private:
  struct Entry {
    std::vector<ChatMessage> messages;
    std::string response;
    size_t bytes, order;
  };
  void erase(std::map<std::string, Entry>::iterator at);

  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  std::map<size_t, std::string> by_order_;
  size_t bytes_ = 0, added_ = 0;
};

// What the functions of endpoints need. Everything in it may be used by many threads at once.
struct Api {
  // The model that a request names. It is loaded first if need be, and stays loaded while the
  // pointer lives. Throws ApiError: 404, or why it cannot be loaded.
  std::function<std::shared_ptr<const ServedModel>(const ModelWish& wish)> model;
  // All models, the first one first. Loads none.
  std::function<std::vector<ModelState>()> models;
  // What the file of a model says, by its name. Loads none. Throws ApiError.
  std::function<ModelHeader(const std::string& name)> header;
  // Unloads a model once no request uses it. Returns its name. Throws ApiError (404).
  std::function<std::string(const std::string& name)> unload;
  int most_tokens = -1;     // of one answer; -1: no limit
  int most_answers = 64;    // n and best_of
  int most_running = 0;     // requests at once
  bool move_dates = false;  // from the system message (changing_lines.h)
  StoredResponses responses;
};

// The form in which a dialect reports errors.
struct Dialect {
  std::string (*error_body)(const ApiError& error);
  // The last part of a stream that has begun, after `parts` others that are no comments.
  std::string (*stream_error)(const ApiError& error, int parts);
};

struct Call {
  std::string_view path;  // after the part that the route names
  const std::string& body;
  std::string_view model = {};  // the parameter `model` of the URL
};

struct Endpoint {
  const char *method, *path;  // a path that ends in '/' also fits longer ones
  // Answers a request. Throws ApiError or Error: answer_call() reports them.
  void (*answer)(Api& api, const Call& call, Reply& reply);
  const Dialect& dialect;
  bool generates = true;  // false: it answers at once and needs no thread of its own
};

std::span<const Endpoint> openai_routes();
std::span<const Endpoint> llama_server_routes();
std::span<const Endpoint> anthropic_routes();
std::span<const Endpoint> ollama_routes();
std::span<const Endpoint> openapi_routes();
std::array<std::span<const Endpoint>, 5> all_routes();

// The route of a request; null: none. `other_method` is set if only the method differs.
const Endpoint* find_route(std::string_view method, std::string_view path, bool* other_method);
// The methods that a path has: "GET, DELETE".
std::string methods_of(std::string_view path);
// The form of errors for requests to a path; OpenAI's for paths that no dialect has.
const Dialect& dialect_of(std::string_view path);
// Runs a route. Every error becomes a response, or the end of the stream.
void answer_call(Api& api, const Endpoint& route, const Call& call, Reply& reply);
// Where the call that this thread answers goes; null outside of answer_call(). A stream of it may
// be begun before the route does so.
Reply* reply_of_thread();

// "chatcmpl-" and 24 random letters and digits.
std::string new_id(const char* prefix);
int64_t unix_time();  // seconds since 1970

}  // namespace chaski
