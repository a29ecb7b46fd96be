#include "main/api/api_error.h"

#include <fmt/format.h>

namespace chaski {

namespace {

constexpr const char *kInvalid = "invalid_request_error", *kServer = "server_error";
constexpr const char* kTooLong = "context_length_exceeded";

}  // namespace

void refuse_field(const std::string& path, const std::string& message) {
  throw ApiError(400, kInvalid, "invalid_value", path.empty() ? message : path + " " + message,
                 path);
}

Error with_advice(const Error& error) {
  if (error.code != Exit::memory || error.have > 0) return error;
  return {error.code,
          fmt::format("{}; start the server with a smaller --ctx to limit the memory of "
                      "a request",
                      error.what())};
}

ApiError api_error_of(const Error& error) {
  const auto of = [&](int status, const char* type, const char* code) {
    return ApiError(status, type, code, error.what());
  };
  switch (error.code) {
    case Exit::usage:
      return of(400, kInvalid, "invalid_value");
    case Exit::memory:
      if (error.have == 0) return of(503, kServer, "out_of_memory");
      [[fallthrough]];  // the pages can never suffice
    case Exit::prompt_too_long: {
      ApiError out = of(400, kInvalid, kTooLong);
      out.prompt_tokens = int(error.need), out.context = int(error.have);
      return out;
    }
    case Exit::non_finite:
      return of(500, kServer, "non_finite");
    default:
      return of(500, kServer, "internal_error");
  }
}

ApiError too_long(int prompt_tokens, int context, bool by_memory) {
  ApiError error(
      400, kInvalid, kTooLong,
      // Clients look for these words of llama-server's, and then shorten the prompt.
      fmt::format("the prompt has {} tokens, which exceeds the available context size of "
                  "{} tokens, or leaves no room for an answer: shorten the prompt, or {}",
                  prompt_tokens, context,
                  by_memory
                      ? "give the server more free memory, because no longer context fitted into "
                        "it (--ctx N sets one all the same)"
                      : "start the server with a larger --ctx if the model supports it"));
  error.prompt_tokens = prompt_tokens, error.context = context;
  return error;
}

ApiError time_is_over() {
  return {503, "unavailable_error", "time_is_over",
          fmt::format("{} before the result was complete", kTimeIsOver)};
}

}  // namespace chaski
