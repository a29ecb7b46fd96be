// Anthropic's interface: bodies become prompts, answers become messages and streams of events.
#include "main/api/changing_lines.h"
#include "tests/api/api_kit.h"

using namespace chaski;
using namespace chaski::test;

namespace {

struct SentEvent {
  std::string name;
  json data;
};

std::vector<SentEvent> events_of(const TestReply& reply) {
  CHECK(reply.type == "text/event-stream");
  std::vector<SentEvent> all;
  for (size_t at = 0; at < reply.body.size();) {
    const size_t end = reply.body.find("\n\n", at), line = reply.body.find('\n', at);
    REQUIRE(end != std::string::npos);
    const std::string first = reply.body.substr(at, line - at),
                      second = reply.body.substr(line + 1, end - line - 1);
    REQUIRE(first.starts_with("event: "));
    REQUIRE(second.starts_with("data: "));
    all.push_back({first.substr(7), json::parse(second.substr(6))});
    CHECK(all.back().data["type"] == all.back().name);
    at = end + 2;
  }
  return all;
}

const json kUser = {{"role", "user"}, {"content", "Hi"}};
const json kTool = {
    {"name", "look_up"},
    {"description", "finds a word"},
    {"input_schema", {{"type", "object"}, {"properties", {{"word", {{"type", "string"}}}}}}}};

json request(json more = json::object()) {
  json all = {{"model", "story"}, {"max_tokens", 100}, {"messages", {kUser}}};
  all.update(more);
  return all;
}

const std::string kCalls =
    "<think>\nA word.\n</think>\n\nI look.\n"
    "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"word\": \"dog\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"word\": \"cat\"}}\n</tool_call>";

}  // namespace

TEST_CASE("api/anthropic: a message has thoughts, text, calls, and what was counted") {
  TestApi test;
  json message = test.post("/v1/messages", request());
  CHECK(message["type"] == "message");
  CHECK(message["role"] == "assistant");
  CHECK(message["model"] == "story");
  CHECK(message["id"].get<std::string>().starts_with("msg_"));
  CHECK(message["content"] == json::parse(R"([{"type": "text", "text": "Hello"}])"));
  CHECK(message["stop_reason"] == "end_turn");
  CHECK(message["stop_sequence"].is_null());
  const json usage = message["usage"];
  CHECK(usage["cache_read_input_tokens"].get<int>() > 0);
  CHECK(usage["output_tokens"].get<int>() > 0);
  const json counted = test.post("/v1/messages/count_tokens", request());
  CHECK(counted["input_tokens"] ==
        usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>());

  test.answer = kCalls;
  message = test.post("/v1/messages", request({{"tools", {kTool}}}));
  CHECK(message["stop_reason"] == "tool_use");
  const json& content = message["content"];
  REQUIRE(content.size() == 4);
  CHECK(content[0]["type"] == "thinking");
  CHECK(content[0]["thinking"] == "A word.");
  CHECK(content[1] == json::parse(R"({"type": "text", "text": "I look.\n"})"));
  CHECK(content[2]["type"] == "tool_use");
  CHECK(content[2]["name"] == "look_up");
  CHECK(content[2]["input"] == json::parse(R"({"word": "dog"})"));
  CHECK(content[3]["input"] == json::parse(R"({"word": "cat"})"));
  CHECK(content[2]["id"] != content[3]["id"]);
  const json one = test.post(
      "/v1/messages",
      request({{"tools", {kTool}},
               {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}}}));
  CHECK(one["content"].size() == 3);
}

TEST_CASE("api/anthropic: the events of a stream come in Anthropic's order") {
  TestApi test;
  test.answer = kCalls;
  const auto events =
      events_of(test.call("POST", "/v1/messages", request({{"tools", {kTool}}, {"stream", true}})));
  std::vector<std::string> order;
  std::string thought, text;
  std::vector<std::string> inputs;
  for (const SentEvent& event : events) {
    std::string name = event.name;
    if (name == "content_block_start" && event.data["content_block"]["type"] == "tool_use")
      inputs.emplace_back();
    if (name == "content_block_start")
      name += " " + event.data["content_block"]["type"].get<std::string>();
    if (name == "content_block_delta") {
      const json& delta = event.data["delta"];
      name += " " + delta["type"].get<std::string>();
      if (delta["type"] == "thinking_delta") thought += delta["thinking"];
      if (delta["type"] == "text_delta") text += delta["text"];
      if (delta["type"] == "input_json_delta") inputs.back() += delta["partial_json"];
    }
    if (order.empty() || order.back() != name) order.push_back(name);
  }
  CHECK(order == std::vector<std::string>{
                     "message_start", "ping", "content_block_start thinking",
                     "content_block_delta thinking_delta", "content_block_delta signature_delta",
                     "content_block_stop", "content_block_start text",
                     "content_block_delta text_delta", "content_block_stop",
                     "content_block_start tool_use", "content_block_delta input_json_delta",
                     "content_block_stop", "content_block_start tool_use",
                     "content_block_delta input_json_delta", "content_block_stop", "message_delta",
                     "message_stop"});
  CHECK(thought == "A word.");
  CHECK(text == "I look.\n");
  REQUIRE(inputs.size() == 2);
  CHECK(json::parse(inputs[1]) == json::parse(R"({"word": "cat"})"));
  const json& start = events[0].data["message"];
  CHECK(start["content"].empty());
  CHECK(start["stop_reason"].is_null());
  CHECK(start["usage"]["cache_read_input_tokens"].get<int>() > 0);
  CHECK(start["usage"]["output_tokens"] == 0);
  int index = -1;
  for (const SentEvent& event : events)
    if (event.name == "content_block_start")
      CHECK(event.data["index"] == ++index);
    else if (event.name.starts_with("content_block"))
      CHECK(event.data["index"] == index);
  CHECK(index == 3);
  const json& end = events[events.size() - 2].data;
  CHECK(end["delta"]["stop_reason"] == "tool_use");
  CHECK(end["usage"]["output_tokens"].get<int>() > 0);

  test.answer = "";
  const auto nothing = events_of(test.call("POST", "/v1/messages", request({{"stream", true}})));
  CHECK(nothing.size() == 4);  // start, ping, delta, stop
}

TEST_CASE("api/anthropic: why an answer ended") {
  TestApi test;
  test.answer = "One two three";
  json message = test.post("/v1/messages", request({{"stop_sequences", {"xyz", " three", "two"}}}));
  CHECK(message["stop_reason"] == "stop_sequence");
  CHECK(message["stop_sequence"] == "two");
  CHECK(message["content"][0]["text"] == "One ");
  test.finish = Finish::length;
  CHECK(test.post("/v1/messages", request())["stop_reason"] == "max_tokens");
  CHECK(test.options.max_tokens == 100);
  test.finish = Finish::full;
  CHECK(test.post("/v1/messages", request())["stop_reason"] == "model_context_window_exceeded");
}

TEST_CASE("api/anthropic: messages, results of tools and thoughts become the prompt") {
  TestApi test;
  const json messages = json::parse(R"([
    {"role": "user", "content": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}},
                                 {"type": "text", "text": "B"}]},
    {"role": "assistant", "content": [
      {"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "C"},
      {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"word": "dog"}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "barks"}]},
      {"type": "text", "text": "D"}]},
    {"role": "assistant", "content": [
      {"type": "tool_use", "id": "t2", "name": "look_up", "input": {}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": "gone"}]},
    {"role": "user", "content": "E"}])");
  const json message = test.post(
      "/v1/messages",
      request({{"messages", messages},
               {"tools", {kTool}},
               {"system", {{{"type", "text"}, {"text", "S"}}, {{"type", "text"}, {"text", "T"}}}},
               {"thinking", {{"type", "disabled"}}}}));
  CHECK(!message.contains("warnings"));
  const size_t begin = test.prompt.find("[system]");
  REQUIRE(begin != std::string::npos);
  CHECK(contains(test.prompt.substr(0, begin), "finds a word"));
  CHECK(test.prompt.substr(begin) ==
        "[system]S\n\nT\n[user]A\n\nB\n"
        "[assistant]<think>\nhm\n</think>\n\nC<tool_call>{\"name\": \"look_up\", \"arguments\": "
        "{\"word\": \"dog\"}}</tool_call>\n"
        "[tool]barks\n[user]D\n"
        "[assistant]<tool_call>{\"name\": \"look_up\", \"arguments\": {}}</tool_call>\n"
        "[tool]Error: gone\n[user]E\n[assistant](no thought)");
  const json later = {{"role", "system"}, {"content", {{{"type", "text"}, {"text", "L"}}}}};
  test.post("/v1/messages", request({{"messages", {kUser, later, kUser}}}));
  CHECK(test.prompt == "[user]Hi\n[system]L\n[user]Hi\n[assistant]");
  test.post("/v1/messages",
            request({{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}}));
  CHECK(test.prompt == "[user]Hi\n[assistant]");
  test.post("/v1/messages",
            request({{"temperature", 0.5}, {"top_k", 7}, {"metadata", {{"user_id", "u"}}}}));
  CHECK(test.options.sampling.temperature == 0.5);
  CHECK(test.options.sampling.top_k == 7);
}

TEST_CASE("api/anthropic: errors have Anthropic's form and name the field") {
  TestApi test;
  const auto refused = [&](const json& more, const std::string& says) {
    const json error = test.post("/v1/messages", request(more), 400);
    CHECK(error["type"] == "error");
    CHECK(error["error"]["type"] == "invalid_request_error");
    const std::string message = error["error"]["message"];
    CHECK_MESSAGE(contains(message, says), message);
  };
  const auto block = [](const json& one, const char* role = "user") {
    return json{{"messages", {{{"role", role}, {"content", json::array({one})}}}}};
  };
  refused(block({{"type", "image"}}),
          "messages[0].content[0].type is image, expected text or tool_result");
  refused(json::parse(R"({"messages": [{"role": "user", "content": []}]})"),
          "messages has no message of a user with a text");
  refused(block({{"type", "tool_result"}, {"tool_use_id", "t9"}}),
          "messages[0].content[0].tool_use_id is t9, but no earlier tool_use block has this id");
  refused({{"messages", json::array()}}, "messages has no message of a user");
  refused({{"messages", {{{"role", "tool"}, {"content", "x"}}}}},
          "messages[0].role is \"tool\", expected user, assistant");
  refused({{"tools", {{{"type", "web_search_20250305"}, {"name", "web_search"}}}}},
          "tools[0].type is web_search_20250305, expected custom");
  refused({{"tools", {{{"name", "x"}}}}}, "tools[0].input_schema is missing");
  refused({{"tools", {kTool}}, {"tool_choice", {{"type", "tool"}, {"name", "x"}}}},
          "tool_choice.name is \"x\", expected");
  refused({{"tool_choice", {{"type", "any"}}}},
          "tool_choice.type is any, but the request has no tools");
  refused({{"stop_sequences", {""}}}, "stop_sequences has an empty text");
  refused({{"mcp_servers", {{{"url", "x"}}}}}, "mcp_servers");
  refused({{"temperature", "hot"}}, "temperature is \"hot\", expected a number");
  const json unknown = test.post("/v1/messages", request({{"model", "other"}}), 404);
  CHECK(unknown["error"]["type"] == "not_found_error");

  // Clients look for these words and then shorten the conversation.
  std::string words;
  for (int i = 0; i < 20000; ++i) words += "dog ";
  const json long_one = test.post(
      "/v1/messages", request({{"messages", {{{"role", "user"}, {"content", words}}}}}), 400);
  const std::string message = long_one["error"]["message"];
  CHECK_MESSAGE(message.starts_with("prompt is too long: "), message);
  CHECK_MESSAGE(contains(message, " tokens > "), message);
}

TEST_CASE("api/anthropic: lines that change with each request do not change the prompt") {
  TestApi test;
  const auto system = [](const std::string& hash, const std::string& date) {
    return json{
        {"system",
         {{{"type", "text"}, {"text", "x-anthropic-billing-header: cc=2; cch=" + hash + ";"}},
          {{"type", "text"}, {"text", "Be brief.\n- Today's date: " + date + "\nUse tools."}}}}};
  };
  const json message = test.post("/v1/messages", request(system("a1", "2026-11-25")));
  CHECK(test.prompt ==
        "[system]Be brief.\n- Today's date: 2026-11-25\nUse tools.\n[user]Hi\n[assistant]");
  CHECK(contains(message["warnings"][0].get<std::string>(), "a billing line was left out"));
  const std::string before = test.prompt;
  test.post("/v1/messages", request(system("b2", "2026-11-25")));
  CHECK(test.prompt == before);

  test.api.move_dates = true;
  const json moved = test.post("/v1/messages", request(system("a1", "2026-11-26")));
  CHECK(test.prompt ==
        "[system]Be brief.\nUse tools.\n[user]- Today's date: 2026-11-26\n\nHi\n[assistant]");
  CHECK(moved["warnings"].size() == 2);

  for (const char* same :
       {"", "\n\n Be brief.\n", "The date field of the billing header", "Todays"})
    CHECK(steady_system(same, true).text == same);
  CHECK(steady_system("x-anthropic-billing-header: a", true).text == "");
  CHECK(steady_system("Current time is 5\n", true).dates == "Current time is 5\n");
}
