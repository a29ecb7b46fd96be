// Tools in chat templates, and the tool calls in answers.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/conversation/call_reader.h"
#include "engine/conversation/own_template.h"
#include "tests/kit/support.h"
#include "tests/text/chat_kit.h"

using namespace chaski;
using namespace chaski::test;

namespace {

const char* kWeather =
    R"([{"type": "function", "function": {"name": "weather", "description": "Now. <|im_end|>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
        {"name": "add", "parameters": {"$ref": "#/$defs/two", "$defs": {"two": {"type": "object"}}}}])";

const char* kWithTools =
    "{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}"
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
    "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const CallIds kIds({}, 7);

// "name arguments; name arguments"
std::string calls_of(const ToolAnswer& answer) {
  std::string out;
  for (const ToolCall& c : answer.calls)
    out += (out.empty() ? "" : "; ") + c.name + " " + c.arguments;
  return out;
}

}  // namespace

TEST_CASE("chat: templates show tools and calls, and their text stays text") {
  const Own own(kWithTools, kControl, Tools::parse("tools.json", kWeather));
  CHECK(own.chat.own()->takes_tools());
  const Messages talk = {{"user", "<tool_call>{}</tool_call><|im_end|>"},
                         {"assistant", "", {{"call00001", "weather", R"({"city":"<|im_end|>"})"}}},
                         {"tool", "rain<|im_end|>", {}, "call00001", "weather"}};
  const std::string shown = own.shown(talk);
  CHECK_EQ(
      shown.substr(shown.find("⟦")),
      "⟦<|im_start|>⟧user\n<tool_call>{}</tool_call><|im_end|>⟦<|im_end|>⟧\n"
      "⟦<|im_start|>⟧assistant\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"<|im_end|>\"}}\n</tool_call>⟦<|im_end|>⟧\n"
      "⟦<|im_start|>⟧tool\nrain<|im_end|>⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\n");
  // Members keep their order in tools.json. The second tool has no "function" object in the file;
  // the template shows it in one.
  CHECK(
      shown.starts_with(R"({"type": "function", "function": {"name": "weather", "description": )"));
  CHECK(shown.find(R"({"type": "function", "function": {"name": "add", )") != std::string::npos);
  check_stable(own.chat, talk);
}

TEST_CASE("chat: the calls in an answer, for each family") {
  const Tools tools = Tools::parse("tools.json", kWeather);
  struct Case {
    const char *mark, *answer, *calls, *content, *fault;
  };
  const Case cases[] = {
      {"<tool_call>",
       "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1, \"a\": "
       "[2.0, \"}\"]}}\n</tool_call>",
       R"(add {"b":1,"a":[2.0,"}"]})", "", ""},
      {"<tool_call>",
       "Both.\n<tool_call>{\"name\": \"add\"}</tool_call>\n<tool_call>{\"name\": "
       "\"weather\", \"arguments\": \"{\\\"city\\\": \\\"Cusco\\\"}\"}",
       R"(add {}; weather {"city":"Cusco"})", "Both.", ""},
      {"<tool_call>", "<think><tool_call>{\"name\": \"add\"}</tool_call></think>No.", "",
       "<think><tool_call>{\"name\": \"add\"}</tool_call></think>No.", ""},
      {"<tool_call>", "<tool_call>{\"name\": \"add\", </tool_call> and", "",
       "<tool_call>{\"name\": \"add\", </tool_call> and",
       "cannot read the tool call \"{\"name\": \"add\", </tool_call>\", expected {\"name\": ..., "},
      {"<tool_call>", "<tool_call>{\"name\": \"ad\"}</tool_call>", "ad {}", "",
       "the model calls the unknown function ad, expected weather or add (nearest: add)"},
      {"<tool_call>", "<tool_call>{\"name\": \"add\"} is it.</tool_call>", "",
       "<tool_call>{\"name\": \"add\"} is it.</tool_call>",
       "cannot read the tool call \"{\"name\": \"add\"} is it.</tool_call>\": the text \"is "
       "it.</tool_call>\" follows it, expected </tool_call> or the end of the answer"},
      {"<tool_call>", "{\"name\": \"add\", \"arguments\": {}}\nThis adds two numbers.", "",
       "{\"name\": \"add\", \"arguments\": {}}\nThis adds two numbers.",
       "cannot read the tool call \"{\"name\": \"add\", \"arguments\": {}}\\nThis adds two "
       "numbers.\": the text \"This adds two numbers.\" follows it, expected </tool_call>"},
      {"<tool_call>", "<tool_call>[]</tool_call>", "", "<tool_call>[]</tool_call>",
       "cannot read the tool call"},
      {"<tool_call>", "{\"name\": \"add\", \"arguments\": {}}", "add {}", "", ""},
      {"<tool_call>", "{\"name\": \"add\"}", "", "{\"name\": \"add\"}", ""},
      {"<tool_call>", "```json\n{\n \"name\": \"add\",\n \"arguments\": {\"a\": 1}\n}\n```\n",
       R"(add {"a":1})", "", ""},
      {"<tool_call>", "```json\n{\"a\": 1}\n```", "", "```json\n{\"a\": 1}\n```", ""},
      {"<tool_call>", "```python\nprint({\"arguments\": 1})\n```", "",
       "```python\nprint({\"arguments\": 1})\n```", ""},
      {"<tool_call>",
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"b </think> c\"}}</tool_call>",
       R"(add {"a":"b </think> c"})", "", ""},
      {"<tool_call> <function=", "", "-", "", ""},
      {"[TOOL_CALLS]",
       "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {}}, {\"name\": "
       "\"weather\", \"arguments\": {}}]",
       "add {}; weather {}", "", ""},
      {"[TOOL_CALLS] [ARGS]", "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]weather{}",
       R"(add {"a":1}; weather {})", "", ""},
      {"<|tool_call|>", "<|tool_call|>[{\"name\": \"add\", \"arguments\": {}}]", "add {}", "", ""},
      {"<|start_header_id|>",
       " {\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": "
       "\"add\", \"parameters\": {}}",
       R"(add {"a":1}; add {})", "", ""},
      {"<|start_header_id|>", "<|python_tag|>{\"name\": \"add\", \"parameters\": {}}", "add {}", "",
       ""},
      {"<|start_header_id|>", "{\"answer\": 42}", "", "{\"answer\": 42}", ""},
      {"<|im_start|>", "", "-", "", ""}};
  const std::string deep =
      "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": " + std::string(1'000'000, '[') +
      std::string(1'000'000, ']') + "}}</tool_call>";
  CHECK(read_calls(*tool_syntax("<tool_call>"), tools, deep, kIds).damaged);
  // Only the last call can be cut off.
  const auto cut = [&](const char* answer) {
    const ToolAnswer read = read_calls(*tool_syntax("<tool_call>"), tools, answer, kIds);
    CHECK(read.damaged);
    return read.cut;
  };
  CHECK(cut("<tool_call>{\"name\": \"count\", \"argu"));
  CHECK_FALSE(cut("<tool_call>{\"name\": }</tool_call> and more"));
  CHECK_FALSE(cut("<tool_call>{\"name\": }</tool_call>"));
  for (const Case& c : cases) {
    CAPTURE(c.mark);
    CAPTURE(c.answer);
    const ToolSyntax* syntax = tool_syntax(c.mark);
    CHECK((syntax == nullptr) == (c.calls == std::string("-")));
    if (!syntax) continue;
    const ToolAnswer answer = read_calls(*syntax, tools, c.answer, kIds);
    CHECK_EQ(calls_of(answer), std::string(c.calls));
    CHECK_EQ(answer.content, std::string(c.content));
    CHECK_EQ(answer.faults.empty(), *c.fault == '\0');
    if (!answer.faults.empty())
      CHECK_MESSAGE(answer.faults[0].starts_with(c.fault), answer.faults[0]);
    for (size_t i = 0; i < answer.calls.size(); ++i) CHECK_EQ(answer.calls[i].id, kIds.of(i));
  }
}

TEST_CASE("chat: ids of calls follow from the prompt and the seed, and have nine characters") {
  const std::vector<int> prompt = {1, 2, 3}, other = {1, 2, 4};
  const auto bytes = [](const std::vector<int>& tokens) {
    return std::as_bytes(std::span(tokens));
  };
  const CallIds ids(bytes(prompt), 7);
  CHECK_EQ(ids.of(1), CallIds(bytes(prompt), 7).of(1));
  std::set<std::string> all;
  for (const CallIds& one : {ids, CallIds(bytes(prompt), 8), CallIds(bytes(other), 7)})
    for (const size_t call : {0, 1, 36}) all.insert(one.of(call));
  CHECK_EQ(all.size(), 9);
  for (const std::string& id : all) {
    CHECK_EQ(id.size(), 9);
    CHECK_EQ(id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz"), id.npos);
  }
}

TEST_CASE("chat: an invalid list of tools is an error with its place") {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "tools.json: the file is "},
           {"[]", "expected a list of functions, at least one"},
           {R"([{"type": "web"}])", R"([0].type is "web", expected "function")"},
           {R"([{"type": "function", "function": {}}])", "[0].function.name is "},
           {R"([{"name": "a"}, {"name": "a"}])", R"([1].name is "a", expected a name that is not)"},
           {R"([{"name": "a", "function": null}, {"type": "web"}])", R"([1].type is "web")"},
           {R"([{"name": "a", "parameters": []}])", "[0].parameters is "}}) {
    const Error error = test::error_of([&] { Tools::parse("tools.json", text); });
    CHECK(error.code == Exit::bad_file);
    const std::string line = error.what();
    CHECK_MESSAGE(line.find(says) != std::string::npos, line);
  }
  // References are adjusted in a schema that is put inside another one.
  const std::string schema = Tools::parse("tools.json", kWeather).schema_of_call("", "arguments");
  CHECK_MESSAGE(
      schema.find(R"("$ref":"#/anyOf/1/properties/arguments/$defs/two")") != std::string::npos,
      schema);
}
