// ollama's interface: bodies become prompts and settings, answers become lines of JSON.
#include "tests/api/api_kit.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::vector<json> ollama_lines(const TestReply& reply) {
  CHECK(reply.type == "application/x-ndjson");
  std::vector<json> all;
  for (size_t at = 0; at < reply.body.size();) {
    const size_t end = reply.body.find('\n', at);
    REQUIRE(end != std::string::npos);
    all.push_back(json::parse(reply.body.substr(at, end - at)));
    at = end + 1;
  }
  return all;
}

json chat(json more = json::object()) {
  json all = {{"model", "story"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  all.update(more);
  return all;
}
json whole(json more = json::object()) {
  json all = chat(std::move(more));
  all["stream"] = false;
  return all;
}

const json kLookUp = {
    {"type", "function"},
    {"function",
     {{"name", "look_up"},
      {"parameters", {{"type", "object"}, {"properties", {{"word", {{"type", "string"}}}}}}}}}};

void check_timing(const json& last) {
  CHECK(last["done"] == true);
  for (const char* name : {"total_duration", "load_duration", "prompt_eval_count",
                           "prompt_eval_duration", "eval_count", "eval_duration"})
    CHECK_MESSAGE(last[name].is_number_integer(), name);
  CHECK(last["prompt_eval_duration"] == 500000000);
  CHECK(last["eval_duration"] == 250000000);
}

}  // namespace

TEST_CASE("api/ollama: a chat is a stream of lines unless stream is false") {
  TestApi test;
  test.answer = "<think>\nHm.\n</think>\n\nHello there, dog.";
  const auto lines = ollama_lines(test.call("POST", "/api/chat", chat()));
  std::string text, thought;
  for (const json& line : lines) {
    CHECK(line["model"] == "story");
    const std::string time = line["created_at"];
    CHECK(time.size() == 30);
    CHECK((time[10] == 'T' && time[19] == '.' && time[29] == 'Z'));
    CHECK(line["message"]["role"] == "assistant");
    text += line["message"]["content"];
    if (line["message"].contains("thinking")) thought += line["message"]["thinking"];
    CHECK(line["done"] == (&line == &lines.back()));
  }
  CHECK(lines.size() > 4);
  CHECK(text == "Hello there, dog.");
  CHECK(thought == "Hm.");
  CHECK(lines.back()["done_reason"] == "stop");
  check_timing(lines.back());

  const json one = test.post("/api/chat", whole({{"keep_alive", "5m"}}));
  CHECK(one["message"]["content"] == text);
  CHECK(one["message"]["thinking"] == "Hm.");
  check_timing(one);
  CHECK(!one.contains("warnings"));
  test.finish = Finish::length;
  CHECK(test.post("/api/chat", whole())["done_reason"] == "length");
}

TEST_CASE("api/ollama: the arguments of a call are an object in both directions") {
  TestApi test;
  test.answer =
      "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"word\": \"dog\"}}\n</tool_call>";
  const json tools = {{"tools", {kLookUp}}};
  const json call = test.post("/api/chat", whole(tools))["message"]["tool_calls"][0];
  CHECK(call["function"]["name"] == "look_up");
  CHECK(call["function"]["index"] == 0);
  CHECK(call["function"]["arguments"] == json::parse(R"({"word": "dog"})"));
  const auto lines = ollama_lines(test.call("POST", "/api/chat", chat(tools)));
  CHECK(lines[0]["message"]["tool_calls"][0]["function"] == call["function"]);
  CHECK(lines.back()["message"]["content"] == "");

  json next = tools;
  next["messages"] = {{{"role", "user"}, {"content", "Hi"}},
                      {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}},
                      {{"role", "tool"}, {"tool_name", "look_up"}, {"content", "barks"}}};
  const json after = test.post("/api/chat", whole(next));
  CHECK(contains(test.prompt,
                 "[assistant]<tool_call>{\"name\": \"look_up\", \"arguments\": "
                 "{\"word\": \"dog\"}}</tool_call>\n[tool]barks\n[assistant]"));
}

TEST_CASE("api/ollama: a text is generated with a template, raw, or not at all") {
  TestApi test;
  json all = {{"model", "story:latest"}, {"prompt", "Once"}, {"stream", false}};
  json got = test.post("/api/generate", all);
  CHECK(test.prompt == "[user]Once\n[assistant]");
  CHECK(got["response"] == "Hello");
  check_timing(got);
  all["system"] = "Be brief.", all["think"] = false;
  test.post("/api/generate", all);
  CHECK(test.prompt == "[system]Be brief.\n[user]Once\n[assistant](no thought)");
  all["raw"] = true;
  CHECK(test.post("/api/generate", all, 400)["error"] ==
        "system is given together with raw, expected one of them");
  all.erase("system");
  test.post("/api/generate", all);
  CHECK(test.prompt == "Once");
  all["stream"] = true;
  const auto lines = ollama_lines(test.call("POST", "/api/generate", all));
  CHECK(lines[0]["response"] == "Hello");
  CHECK(lines.back()["response"] == "");

  got = test.post("/api/generate", {{"model", "story"}, {"stream", false}});
  CHECK(got["done_reason"] == "load");
  for (const char* path : {"/api/generate", "/api/chat"})
    test.post(path, {{"options", {{"top_p", 7}}}}, 400);
  CHECK(ollama_lines(test.call("POST", "/api/chat", {{"model", "story"}})).size() == 1);
  all = {{"model", "story"}, {"prompt", "a"}, {"suffix", "b"}, {"stream", false}};
  CHECK(contains(test.post("/api/generate", all, 400)["error"].get<std::string>(),
                 "has no tokens that mark a hole in a text"));
}

TEST_CASE("api/ollama: options reach the sampler, and what cannot be honoured is refused") {
  TestApi test;
  const int context = TestApi::engine()->context_length();
  const json options = {{"temperature", 0.25}, {"seed", 42},      {"num_predict", 5},
                        {"top_k", 3},          {"top_p", 0.5},    {"stop", {"x"}},
                        {"num_ctx", context},  {"num_thread", 4}, {"repeat_penalty", 1.25}};
  const json got = test.post("/api/chat", whole({{"options", options}}));
  CHECK(test.options.sampling.temperature == 0.25);
  CHECK(test.options.sampling.seed == 42);
  CHECK(test.options.sampling.top_k == 3);
  CHECK(test.options.max_tokens == 5);
  CHECK(std::ranges::count(test.options.stop, "x") == 1);
  CHECK(got["seed"] == 42);
  CHECK(!got.contains("warnings"));
  test.post("/api/chat", whole({{"options", {{"num_predict", -2}}}}));
  CHECK(test.options.max_tokens == -1);

  const auto refused = [&](const json& more, const std::string& says) {
    const std::string error = test.post("/api/chat", whole(more), 400)["error"];
    CHECK_MESSAGE(contains(error, says), error);
  };
  refused({{"options", {{"num_ctx", context + 1}}}}, "options.num_ctx is ");
  refused({{"options", {{"temperature", "hot"}}}}, "options.temperature is \"hot\"");
  refused({{"format", "yaml"}}, "format is \"yaml\", expected");
  refused({{"think", "long"}}, "think is \"long\", expected low, medium, high");
  refused({{"messages", {{{"role", "user"}, {"content", "x"}, {"images", {"AAAA"}}}}}},
          "messages[0].images is not empty: the model reads text only");
  refused({{"logprobs", true}}, "logprobs is true, expected false");
  CHECK(test.post("/api/chat", whole({{"tools", {kLookUp}}, {"format", "json"}}))["done"] == true);
  CHECK(test.post("/api/chat", whole({{"format", "json"}, {"options", {{"min_p", 0}}}}))["done"] ==
        true);
  CHECK(test.post("/api/chat", whole({{"format", {{"type", "object"}}}}))["done"] == true);
  CHECK(contains(test.post("/api/chat", whole({{"wrod", 1}}))["warnings"][0].get<std::string>(),
                 "wrod"));
}

TEST_CASE("api/ollama: what clients ask about models") {
  TestApi test;
  const json tags = json::parse(test.call("GET", "/api/tags", {}).body)["models"];
  REQUIRE(tags.size() == 1);
  CHECK(tags[0]["name"] == "story");
  CHECK(tags[0]["size"].get<uint64_t>() == TestApi::engine()->file_bytes());
  CHECK(tags[0]["modified_at"] == "2025-11-24T16:00:00.000000000Z");
  CHECK(tags[0]["digest"].get<std::string>().size() == 64);
  CHECK(tags[0]["details"]["family"] == "llama");
  CHECK(tags[0]["details"]["parameter_size"].get<std::string>().ends_with('M'));
  const json running = json::parse(test.call("GET", "/api/ps", {}).body)["models"];
  CHECK(running[0]["context_length"] == TestApi::engine()->context_length());
  CHECK(running[0]["expires_at"].get<std::string>().starts_with("9999-"));
  test.expires_at = 1764000300;
  CHECK(json::parse(test.call("GET", "/api/ps", {}).body)["models"][0]["expires_at"] ==
        "2025-11-24T16:05:00.000000000Z");
  const json shown = test.post("/api/show", {{"model", "story"}});
  CHECK(shown["model_info"]["general.architecture"] == "llama");
  CHECK(shown["model_info"]["llama.context_length"] == 512);
  CHECK(shown["model_info"]["llama.attention.head_count_kv"] == 3);
  CHECK(shown["capabilities"].size() == 3);  // completion, tools, thinking: of the test's template
  CHECK(json::parse(test.call("GET", "/api/version", {}).body)["version"].is_string());

  CHECK(contains(test.post("/api/show", {{"model", "other"}}, 404)["error"].get<std::string>(),
                 "other"));
  CHECK(contains(test.post("/api/embed", {{"model", "story"}, {"input", "x"}}, 400)["error"]
                     .get<std::string>(),
                 "--embedding-model"));
  CHECK(contains(test.post("/api/pull", {{"model", "smollm2"}}, 501)["error"].get<std::string>(),
                 "run chaski pull smollm2"));
  const TestReply& removed = test.call("DELETE", "/api/delete", {{"model", "story"}});
  CHECK(removed.status == 501);
  CHECK(contains(removed.body, "rm removes it"));
}
