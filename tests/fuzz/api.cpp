// The body of a request to the server: JSON, and every field that is read before a model is used,
// in the interfaces of OpenAI (also /v1/responses), llama.cpp, Anthropic and ollama.
#include "main/api/anthropic_request.h"
#include "main/api/ollama_request.h"
#include "main/api/responses_request.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

// A body may be refused; the path and the message are then safe for a terminal and valid JSON.
template <class F>
void may_refuse(F f) {
  try {
    f();
  } catch (const ApiError& error) {
    expect(error.status == 400, "a wrong body has status 400");
    expect(!written(openai_error(error)).empty(), "an error is a body");
  } catch (const Error& error) {
    check_line(int(error.code), error.what());
  }
}

constexpr int kContext = 4096;  // tokens

void check_warnings(const Body& body) {
  for (const std::string& line : body.warnings())
    expect(escaped(line) == line, "a warning is safe for a terminal");
}

void read_as_openai(std::string_view text) {
  Body body(text);
  const Field fields = body.fields();
  ChatRequest request;
  may_refuse([&] { read_messages(fields["messages"]); });
  may_refuse([&] { read_tools(fields, request); });
  may_refuse([&] { read_thinking(fields, body, request); });
  may_refuse([&] { read_stream(fields); });
  may_refuse([&] {
    AnswerSettings settings = read_settings(fields, {});
    if (const auto format = fields.find("response_format")) read_response_format(*format, settings);
  });
  check_warnings(body);
}

void read_as_responses(std::string_view text) {
  Body body(text);
  // A response that the server has kept, and one that it has not.
  const auto earlier = [](const Field& id) -> std::vector<ChatMessage> {
    if (id.text() == "resp_1") return {{"user", "Hi"}, {"assistant", "Yes?"}};
    id.refuse("is unknown");
  };
  may_refuse([&] {
    const AskedResponse asked = read_response({}, {}, body, earlier);
    expect(!asked.chat.messages.empty(), "a response has a question");
    expect(!written(asked.shown).empty(), "the fields that a response repeats are JSON");
  });
  check_warnings(body);
}

void read_as_anthropic(std::string_view text) {
  for (const bool moves : {false, true}) {
    Api api;
    api.most_tokens = kContext, api.move_dates = moves;
    Body body(text);
    may_refuse([&] {
      ChatRequest request = read_anthropic(api, {}, body);
      expect(!request.messages.empty(), "a conversation has a question");
      read_anthropic_settings(api, {}, body.fields(), request);
    });
    check_warnings(body);
  }
}

void read_as_ollama(std::string_view text) {
  Body body(text);
  const Field fields = body.fields();
  AnswerSettings settings;
  may_refuse([&] { read_ollama_options(fields, {}, kContext, settings); });
  may_refuse([&] { read_ollama_format(fields, settings); });
  may_refuse([&] { read_think(fields, true); });
  may_refuse([&] { is_streamed(fields); });
  may_refuse([&] { accept_ollama_fields(fields); });
  may_refuse([&] { read_generate_fields(fields); });
  may_refuse([&] {
    if (const auto messages = fields.find("messages"))
      for (const Field& message : messages->items()) refuse_images(message);
  });
  check_warnings(body);
}

const Declared api("api", [](std::string_view input) {
  for (const auto read : {read_as_openai, read_as_responses, read_as_anthropic, read_as_ollama})
    may_refuse([&] { read(input); });
});

}  // namespace
}  // namespace chaski::fuzz
