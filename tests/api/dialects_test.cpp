// chaski serve: the interfaces of Anthropic and ollama over a socket. Every text is that of chaski
// chat or run, byte for byte.
#include "tests/kit/client.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

json question() { return json::array({{{"role", "user"}, {"content", "Tell me of a cat."}}}); }

}  // namespace

TEST_CASE(
    "serve/dialects: texts equal those of chaski alone, and errors have each dialect's form") {
  const TempFolder folder;
  const std::string keys = write_file(folder / "keys", "secret\n");
  const Serving server({"--no-log", "--api-keys", keys});
  const std::string key = "x-api-key: secret\r\nanthropic-version: 2023-06-01\r\n";
  const Outcome chat = chaski_run(
      {"chat", "-m", kStory, "-p", "Tell me of a cat.", "-n", "16", "--seed", "5", "-q", "--json"});
  const std::string alone = json::parse(chat.out)["text"];

  json request = {{"model", "story"}, {"max_tokens", 16}, {"seed", 5}, {"messages", question()}};
  const HttpResponse whole = server.post("/v1/messages?beta=true", request, key);
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  CHECK(whole.json()["content"][0]["text"] == alone);
  CHECK(whole.json()["usage"]["output_tokens"] == 16);
  request["stream"] = true;
  std::string text, last;
  for (const json& event : server.post("/v1/messages", request, key).events()) {
    if (event["type"] == "content_block_delta") text += event["delta"]["text"];
    last = event["type"];
  }
  CHECK(text == alone);
  CHECK(last == "message_stop");
  const json denied = server.post("/v1/messages", request).json();
  CHECK(denied["type"] == "error");
  CHECK(denied["error"]["type"] == "authentication_error");

  request = {{"model", "story"},
             {"messages", question()},
             {"options", {{"seed", 5}, {"num_predict", 16}}}};
  const HttpResponse lines = server.post("/api/chat", request, key);
  REQUIRE_MESSAGE(lines.status == 200, lines.body);
  CHECK(contains(lines.head, "application/x-ndjson"));
  text.clear();
  for (const std::string& line : lines_of(lines.body))
    text += json::parse(line)["message"]["content"];
  CHECK(text == alone);
  request = {{"prompt", "Once upon a time"},
             {"raw", true},
             {"stream", false},
             {"options", {{"seed", 3}, {"num_predict", 12}}}};
  CHECK(server.post("/api/generate", request, key).json()["response"] ==
        chaski_run(run_story({"-n", "12", "--seed", "3", "-q"})).out);
  CHECK(server.post("/api/chat", request).json()["error"].is_string());
  CHECK(server.get("/api/tags", key).json()["models"][0]["name"] == "story");
}
