// Tool calls through OpenAI's interfaces: fragments of a stream, damage, schemas next to tools, and
// models whose chat template has no tools.
#include "tests/api/api_kit.h"
#include "tests/kit/grammar_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

const json kLookUpTool = json::parse(R"({"type": "function", "function": {"name": "look_up",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}})");
constexpr const char* kCall =
    "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"word\": \"a dog\", \"n\": [1, 2]}}\n"
    "</tool_call>";
constexpr const char* kSpelled = R"({"word":"a dog","n":[1,2]})";
constexpr const char* kPlainTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

constexpr const char* kThinkTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}";

json chat_with(const json& more = json::object()) {
  json all = {{"messages", {{{"role", "user"}, {"content", "Look!"}}}}, {"tools", {kLookUpTool}}};
  all.update(more);
  return all;
}

// What a client puts together from the chunks of a stream.
struct Streamed {
  std::string content, id, name, arguments, finish;
  int fragments = 0;
  json warnings;

  explicit Streamed(const TestReply& reply) {
    std::istringstream in(reply.body);
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("data: {")) continue;
      const json chunk = json::parse(line.substr(6)), choice = chunk["choices"][0];
      const json& delta = choice["delta"];
      if (delta.contains("content")) content += delta["content"];
      if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
      if (chunk.contains("warnings")) warnings = chunk["warnings"];
      if (!delta.contains("tool_calls")) continue;
      const json& call = delta["tool_calls"][0];
      if (call.contains("id")) id = call["id"], name = call["function"]["name"];
      const std::string part = call["function"]["arguments"];
      fragments += !part.empty();
      arguments += part;
    }
  }
};

}  // namespace

TEST_CASE("api/tools: the id and name of a call come first, then fragments of its arguments") {
  TestApi t;
  t.answer = std::string("<think>\nhm\n</think>\n\n") + kCall;
  const Streamed got(
      t.call("POST", "/v1/chat/completions", chat_with({{"seed", 1}, {"stream", true}})));
  CHECK(got.name == "look_up");
  CHECK(got.fragments > 2);
  CHECK(got.arguments == kSpelled);
  CHECK(got.finish == "tool_calls");
  const json message =
      t.post("/v1/chat/completions", chat_with({{"seed", 1}}))["choices"][0]["message"];
  CHECK(message["tool_calls"][0]["function"]["arguments"] == kSpelled);
  CHECK(message["tool_calls"][0]["id"] == got.id);
}

TEST_CASE("api/tools: a call that is cut after it has begun is text, in a stream too") {
  TestApi t;
  t.answer = R"(<tool_call>{"name": "look_up", "arguments": {"word": "do)";
  t.finish = Finish::length;
  const Streamed got(t.call("POST", "/v1/chat/completions", chat_with({{"stream", true}})));
  CHECK(got.name == "look_up");
  CHECK(got.arguments == R"({"word":"do)");
  CHECK(got.content == t.answer);
  CHECK(got.finish == "length");
  CHECK(got.warnings.size() == 1);
  const json choice = t.post("/v1/chat/completions", chat_with())["choices"][0];
  CHECK(choice["message"]["content"] == t.answer);
  CHECK(!choice["message"].contains("tool_calls"));
  const json response = t.post("/v1/responses", {{"input", "Look!"}, {"tools", {kLookUpTool}}});
  CHECK(response["status"] == "incomplete");
  REQUIRE(response["output"].size() == 1);
  CHECK(response["output"][0]["type"] == "message");
  CHECK(response["output"][0]["status"] == "incomplete");
}

TEST_CASE("api/tools: next to a schema an answer is a call, or text of the schema") {
  TestApi t;
  const json format = {
      {"response_format",
       {{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "integer"}}}}}}}};
  t.post("/v1/chat/completions", chat_with(format));
  REQUIRE(t.options.rules);
  TextReader reader(t.options.rules);
  CHECK(reader.fits("42"));
  CHECK(
      reader.fits("<tool_call>\n{\"name\":\"look_up\",\"arguments\":{\"word\":\"a\"}}\n"
                  "</tool_call>"));
  CHECK(!reader.fits("Hello"));
  CHECK(!reader.fits("<tool_call>\n{\"name\":\"other\",\"arguments\":{}}\n</tool_call>"));
  json forced = chat_with(format);
  forced["tool_choice"] = "required";
  t.post("/v1/chat/completions", forced);
  CHECK(!TextReader(t.options.rules).fits("42"));
}

TEST_CASE("api/tools: a grammar applies after the thought that the chat template opens") {
  TestApi t(kThinkTemplate);
  t.post("/v1/chat/completions",
         {{"messages", {{{"role", "user"}, {"content", "A number."}}}}, {"regex", "[0-9]+"}});
  TextReader reader(t.options.rules);
  CHECK(reader.fits("Six? </thin No: 7.</think>\n\n7"));
  CHECK(!reader.fits("7"));
  CHECK(!reader.fits("Seven.</think>\n\nSeven"));
}

TEST_CASE("api/tools: without tools in its chat template the system message describes them") {
  TestApi t(kPlainTemplate);
  t.answer = kCall;
  const json message = t.post("/v1/chat/completions", chat_with())["choices"][0]["message"];
  CHECK(message["tool_calls"][0]["function"]["arguments"] == kSpelled);
  CHECK(contains(t.prompt, "[system]You may call functions."));
  CHECK(contains(t.prompt, R"({"name":"look_up","parameters")"));
  const json call = {{"id", "c1"},
                     {"type", "function"},
                     {"function", {{"name", "look_up"}, {"arguments", "{\"word\":\"a\"}"}}}};
  const json talk = {{{"role", "system"}, {"content", "Be brief."}},
                     {{"role", "user"}, {"content", "Look!"}},
                     {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
                     {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "barks"}}};
  t.post("/v1/chat/completions", {{"messages", talk}, {"tools", {kLookUpTool}}});
  CHECK(contains(t.prompt, "[system]Be brief.\n\nYou may call functions."));
  CHECK(contains(t.prompt,
                 "[assistant]<tool_call>\n{\"name\": \"look_up\", \"arguments\": "
                 "{\"word\":\"a\"}}\n</tool_call>\n[user]<tool_response>\nbarks"));
  t.post("/v1/chat/completions", chat_with({{"tool_choice", "required"}}));
  CHECK(t.prompt.ends_with("[assistant]<tool_call>\n"));
}

TEST_CASE("api/tools: an answer that has begun is continued after its thought") {
  TestApi t(kThinkTemplate);
  const auto prompt_of = [&](json begun) {
    begun["role"] = "assistant";
    t.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Hi"}}, begun}}});
    return t.prompt;
  };
  CHECK(prompt_of({{"content", "Hel"}}).ends_with("<think>\n\n</think>\n\nHel"));
  CHECK(prompt_of({{"content", "Hel"}, {"reasoning_content", "Greet."}})
            .ends_with("<think>\nGreet.\n</think>\n\nHel"));
}

TEST_CASE("api/tools: an error names the tool and its member, in every dialect") {
  TestApi t;
  const auto param = [&](const std::string& path, const json& body) {
    return t.post(path, body, 400)["error"]["param"].get<std::string>();
  };
  const json bad = {{"type", "object"}, {"properties", {{"n", {{"minimum", "low"}}}}}};
  const json broken = {{"type", "function"}, {"function", {{"name", "b"}, {"parameters", bad}}}};
  json body = chat_with({{"tool_choice", "required"}});
  body["tools"].push_back(broken);
  CHECK(param("/v1/chat/completions", body) == "tools[1].function.parameters");
  body["tool_choice"] = "auto";  // then no grammar follows the schema
  t.post("/v1/chat/completions", body);
  body["tools"][1] = {{"type", "function"}, {"function", json::object()}};
  CHECK(param("/v1/chat/completions", body) == "tools[1].function.name");
  const json plain = {{"type", "function"}, {"name", "b"}, {"parameters", bad}};
  CHECK(
      param("/v1/responses", {{"input", "Hi"}, {"tools", {plain}}, {"tool_choice", "required"}}) ==
      "tools[0].parameters");
  const std::string refused = t.post("/v1/messages",
                                     {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                      {"max_tokens", 8},
                                      {"tools", {{{"name", "b"}, {"input_schema", bad}}}},
                                      {"tool_choice", {{"type", "any"}}}},
                                     400)["error"]["message"];
  CHECK_MESSAGE(contains(refused, "tools[0].input_schema"), refused);
  body = chat_with();
  body["messages"].push_back(
      {{"role", "assistant"},
       {"tool_calls", {{{"function", {{"name", "look_up"}, {"arguments", "{]"}}}}}}});
  CHECK(param("/v1/chat/completions", body) == "messages[1].tool_calls[0].function.arguments");
}

TEST_CASE("api/tools: calls of two requests have two ids, and the same request the same one") {
  TestApi t;
  t.answer = kCall;
  const auto id = [&](const json& more) -> std::string {
    return t.post("/v1/chat/completions",
                  chat_with(more))["choices"][0]["message"]["tool_calls"][0]["id"];
  };
  CHECK(id({{"seed", 1}}) == id({{"seed", 1}}));
  CHECK(id({{"seed", 1}}) != id({{"seed", 2}}));
  const json other = {{{"role", "user"}, {"content", "Look again!"}}};
  CHECK(id({{"seed", 1}}) != id({{"seed", 1}, {"messages", other}}));
}
