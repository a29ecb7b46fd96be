// The body of a request to the server: JSON, and every field of OpenAI's and llama.cpp's interfaces
// that is read before a model is used.
#include "main/api/openai_parts.h"
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

void read(std::string_view text) {
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
  for (const std::string& line : body.warnings())
    expect(escaped(line) == line, "a warning is safe for a terminal");
}

const Declared api("api", [](std::string_view input) { may_refuse([&] { read(input); }); });

}  // namespace
}  // namespace chaski::fuzz
