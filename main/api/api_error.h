// Errors of a request to an API. Each dialect writes them in its own form.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/requests/request.h"

namespace chaski {

struct ApiError : std::runtime_error {
  ApiError(int status, std::string type, std::string code, const std::string& message,
           std::string param = "")
      : std::runtime_error(message),
        status(status),
        type(std::move(type)),
        code(std::move(code)),
        param(std::move(param)) {}
  int status;              // of HTTP
  std::string type, code;  // OpenAI's: "invalid_request_error", "context_length_exceeded"
  std::string param;       // the path of the field: "messages[2].content"; empty: no field
  int prompt_tokens = 0, context = 0;  // of context_length_exceeded, if they are known
  double retry_seconds = 0;            // 429, 503: when the same request may succeed; 0: unknown
};

// 400 for a field that is wrong or cannot be honoured. `path` also begins the message.
[[noreturn]] void refuse_field(const std::string& path, const std::string& message);

// For a server: if it had too little memory for the request, the error also says which of its flags
// limits that.
Error with_advice(const Error& error);
template <typename Work>
auto advised(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.code != Exit::memory) throw;
    throw with_advice(error);
  }
}

// The error that a request answers when the engine ended it with `error`.
ApiError api_error_of(const Error& error);
// 400 context_length_exceeded, which names both numbers. `by_memory`: the free memory of the server
// chose the context.
ApiError too_long(int prompt_tokens, int context, bool by_memory);
// 503 for a result of which there is no part, such as an embedding.
ApiError time_is_over();
// Begins the warning or the error of an answer whose time is over.
constexpr const char* kTimeIsOver = "the time for an answer (--max-seconds of the server) was over";

}  // namespace chaski
