// OpenAI's interfaces without a socket: limits, errors that name the field, thoughts before calls.
#include <chrono>
#include <ctime>
#include <system_error>
#include <thread>

#include "tests/api/api_kit.h"

using namespace chaski;
using namespace chaski::test;

namespace {

json openai_chat(const json& more = json::object()) {
  json all = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  all.update(more);
  return all;
}

std::vector<json> openai_events(const TestReply& reply) {
  std::vector<json> all;
  std::istringstream in(reply.body);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("data: {")) all.push_back(json::parse(line.substr(6)));
  return all;
}

}  // namespace

TEST_CASE("api/openai: an error names the field that the request has") {
  TestApi t;
  t.api.most_tokens = 10;
  const auto param = [&](const std::string& path, const json& body) {
    return t.post(path, body, 400)["error"]["param"];
  };
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    CHECK(param("/v1/chat/completions", openai_chat({{name, 11}})) == name);
    CHECK(param("/v1/completions", {{"prompt", "A"}, {name, 11}}) == name);
  }
  CHECK(param("/v1/responses", {{"input", "A"}, {"max_output_tokens", 11}}) == "max_output_tokens");
  const int size = TestApi::engine()->vocab_size();
  const json bias = {{"logit_bias", {{std::to_string(size), 1}}}};
  const json refused = t.post("/v1/chat/completions", openai_chat(bias), 400)["error"];
  CHECK(refused["param"] == "logit_bias");
  CHECK(refused["message"] == "logit_bias has token " + std::to_string(size) + ", expected 0 to " +
                                  std::to_string(size - 1));
  t.post("/v1/completions", {{"prompt", "A"}, {"logit_bias", {{"the end", 1}}}});
  CHECK(t.options.sampling.bias.size() == TestApi::engine()->tokenizer().encode("the end").size());
}

TEST_CASE("api/openai: what would need much memory is refused") {
  TestApi t;
  const auto param = [&](const std::string& path, const json& body) {
    return t.post(path, body, 400)["error"]["param"];
  };
  CHECK(param("/v1/chat/completions", openai_chat({{"logprobs", true}, {"top_logprobs", 21}})) ==
        "top_logprobs");
  CHECK(param("/v1/completions", {{"prompt", "A"}, {"logprobs", 6}}) == "logprobs");
  CHECK(param("/completion", {{"prompt", "A"}, {"n_probs", 101}}) == "n_probs");
  const std::vector<std::string> texts(257, "A");
  CHECK(param("/v1/completions", {{"prompt", texts}}) == "prompt");
  const std::vector<int> numbers(Body::kMostValues, 7);
  const json error = t.post("/detokenize", {{"tokens", numbers}}, 400)["error"];
  CHECK(error["message"] == "the body has more than 1000000 values");
  const json wrong = t.post("/detokenize", {{"tokens", {7, 8.0, -1}}}, 400)["error"];
  CHECK(wrong["param"] == "tokens[2]");
}

TEST_CASE("api/openai: many texts have at most 64 threads, and each is answered once") {
  constexpr int kTexts = 200;
  std::vector<std::atomic<int>> answered(kTexts);
  std::atomic<int> running = 0, most = 0;
  answer_all(kTexts, [&](int i) {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    ++answered[size_t(i)];
    std::this_thread::yield();
    --running;
  });
  CHECK(std::ranges::all_of(answered, [](const auto& n) { return n == 1; }));
  CHECK(most <= 64);
}

TEST_CASE("api/openai: without a thread, and at other errors, a request has an error of its own") {
  TestApi t;
  t.fault = [] { throw std::system_error(EAGAIN, std::generic_category()); };
  CHECK(t.post("/v1/chat/completions", openai_chat(), 503)["error"]["code"] == "out_of_threads");
  t.fault = [] { throw std::out_of_range("at"); };
  CHECK(t.post("/v1/completions", {{"prompt", "A"}}, 500)["error"]["code"] == "internal_error");
}

TEST_CASE("api: missing memory of the server is no fault of the request, in each dialect") {
  TestApi t;
  const auto lacks = [](int64_t need, int64_t have) {
    return [=] {
      throw Error(Exit::memory, "9.1 MB are wanted, 0.5 MB available; --kv q8", need, have);
    };
  };
  const json chat = openai_chat(), text = {{"prompt", "A"}}, input = {{"input", "Hi"}};
  json message = chat;
  message["max_tokens"] = 9;
  const std::pair<const char*, json> requests[] = {
      {"/v1/chat/completions", chat}, {"/v1/completions", text}, {"/v1/responses", input},
      {"/v1/messages", message},      {"/api/chat", chat},       {"/api/generate", text},
      {"/completion", text}};
  // The line is the engine's: chaski batch has no server whose --ctx could be smaller.
  const auto has_line = [](const std::string& body) {
    CHECK_MESSAGE(contains(body, "9.1 MB are wanted, 0.5 MB available; --kv q8\""), body);
  };
  for (auto [path, request] : requests) {
    CAPTURE(path);
    const bool ollama = std::string(path).starts_with("/api/");
    request["stream"] = false;
    t.fault = lacks(0, 0);
    json error = t.post(path, request, 503)["error"];
    has_line(error.dump());
    if (path == std::string("/v1/messages")) {
      CHECK(error["type"] == "overloaded_error");
    } else if (!ollama) {
      CHECK(error["code"] == "out_of_memory");
      CHECK(error["type"] == "server_error");
    }
    // The pages of the server can never suffice: the text is too long for it.
    t.fault = lacks(600, 512);
    error = t.post(path, request, 400)["error"];
    if (!ollama) CHECK(contains(error.dump(), "512"));
    // A stream that has begun ends with the error, and as its dialect ends a stream.
    request["stream"] = true;
    t.fault = lacks(0, 0);
    const TestReply& reply = t.call("POST", path, request);
    CHECK(reply.status == 200);
    CHECK(contains(reply.body, "Hello"));
    const std::string last = reply.body.substr(reply.body.rfind("error\":") - 2);
    has_line(last);
    const std::string name = path;
    if (name == "/v1/chat/completions" || name == "/v1/completions" || name == "/completion")
      CHECK_MESSAGE(reply.body.ends_with("data: [DONE]\n\n"), last);
  }
}

TEST_CASE("api/openai: an error of a stream of responses is an event with type and number") {
  TestApi t;
  t.fault = [] { throw Error(Exit::non_finite, "not finite"); };
  const auto events =
      openai_events(t.call("POST", "/v1/responses", {{"input", "Hi"}, {"stream", true}}));
  REQUIRE(events.size() > 3);
  for (size_t i = 0; i < events.size(); ++i) CHECK(events[i]["sequence_number"] == i);
  CHECK(events.back() == json{{"type", "error"},
                              {"sequence_number", events.size() - 1},
                              {"code", "non_finite"},
                              {"message", "not finite"},
                              {"param", nullptr}});
}

TEST_CASE("api/openai: a thought stays with the call after it, and no other message gets it") {
  TestApi t;
  const auto thought = [](const char* text) {
    return json{{"type", "reasoning"}, {"content", {{{"type", "reasoning_text"}, {"text", text}}}}};
  };
  const json input = {
      thought("lost"),
      {{"role", "user"}, {"content", "Count."}},
      thought("use it"),
      {{"type", "function_call"}, {"call_id", "c1"}, {"name", "count"}, {"arguments", "{}"}},
      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "3"}},
      {{"role", "assistant"}, {"content", "Three."}},
      {{"role", "user"}, {"content", "More."}}};
  t.post("/v1/responses", {{"input", input}});
  CHECK(contains(t.prompt, "[assistant]<think>\nuse it\n</think>\n\n<tool_call>"));
  CHECK(contains(t.prompt, "[assistant]Three."));
  CHECK(!contains(t.prompt, "lost"));
}

TEST_CASE("api/openai: a client that goes interrupts also a request for one call") {
  TestApi t;
  const TestReply& reply =
      t.call("POST", "/v1/chat/completions", openai_chat({{"parallel_tool_calls", false}}));
  CHECK(t.options.interrupt == &reply.is_gone);
}

TEST_CASE("api/openai: kept responses count all their texts") {
  StoredResponses kept;
  const std::string large(StoredResponses::kMostBytes * 2 / 3, 'a');
  for (const char* id : {"1", "2"}) {
    ChatMessage result{"tool", ""};
    result.name = large;
    kept.keep(id, {result}, "{}");
  }
  CHECK(!kept.response("1"));
  CHECK(kept.response("2"));
}

TEST_CASE("api/openai: echo with logprobs has those of each prompt, null for its first token") {
  TestApi t;
  const auto& tokenizer = TestApi::engine()->tokenizer();
  const std::vector<std::string> prompts = {"A cat sat.", "A dog ran home."};
  const json body = {{"prompt", prompts}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}};
  const json whole = t.post("/v1/completions", body);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const json& logged = whole["choices"][i]["logprobs"];
    const std::vector<TokenId> tokens = tokenizer.encode_prompt(prompts[i]);
    REQUIRE(logged["token_logprobs"].size() == tokens.size());
    CHECK(logged["token_ids"] == json(tokens));
    CHECK(logged["token_logprobs"][0].is_null());
    CHECK(logged["top_logprobs"][0].is_null());
    CHECK(logged["token_logprobs"][2] == -2);
    CHECK(logged["top_logprobs"][2].size() == 1);
    CHECK(logged["text_offset"][0] == 0);
    const size_t last = logged["text_offset"].back().get<size_t>();
    REQUIRE(last < prompts[i].size());
    CHECK(prompts[i].substr(last) == tokenizer.piece(tokens.back()));
  }
  json streamed = body;
  streamed["stream"] = true;
  std::vector<json> first;
  for (const json& event : openai_events(t.call("POST", "/v1/completions", streamed)))
    for (const json& choice : event["choices"])
      if (!choice["logprobs"].is_null()) first.push_back(choice);
  REQUIRE(first.size() == prompts.size());
  for (const json& choice : first) {
    const size_t i = choice["index"];
    CHECK(choice["text"] == prompts[i]);
    CHECK(choice["logprobs"] == whole["choices"][i]["logprobs"]);
  }
  // Without those of all tokens there is no answer.
  t.late = true;
  CHECK(t.post("/v1/completions", body, 503)["error"]["code"] == "time_is_over");
  CHECK(t.post("/v1/completions", streamed, 503)["error"]["code"] == "time_is_over");
}

TEST_CASE("api/openai: chat_template_kwargs are variables of the chat template") {
  TestApi t(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}({{ style }} {{ (documents or []) | length }} "
      "{{ enable_thinking }})[assistant]{% endif %}");
  const auto prompt = [&](const json& variables) {
    t.post("/v1/chat/completions", openai_chat({{"chat_template_kwargs", variables}}));
    return t.prompt;
  };
  CHECK(contains(prompt({{"style", "old"}, {"documents", {{{"title", "a"}}}}}), "(old 1 True)"));
  CHECK(contains(prompt({{"style", 3}, {"enable_thinking", false}}), "(3 0 False)"));
  for (const char* own : {"messages", "tools", "add_generation_prompt"}) {
    const json body = openai_chat({{"chat_template_kwargs", {{own, json::array()}}}});
    CHECK(t.post("/v1/chat/completions", body, 400)["error"]["param"] ==
          std::string("chat_template_kwargs.") + own);
  }
}

TEST_CASE("api/openai: a template that fails with the variables of a request is an error") {
  TestApi t(
      "{% if style == 'none' %}{{ raise_exception('no style') }}{% endif %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto body = [](const char* style) {
    return openai_chat({{"chat_template_kwargs", {{"style", style}}}});
  };
  t.post("/v1/chat/completions", body("old"));
  const json error = t.post("/v1/chat/completions", body("none"), 400)["error"];
  CHECK(error["param"] == "chat_template_kwargs");
  CHECK(contains(error["message"].get<std::string>(), "no style"));
}

TEST_CASE("api/openai: templates have today's date and the tools as text, as in llama-server") {
  TestApi t(
      "{{ date_string }}|{{ datetime }}|{{ functions }}|"
      "{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto shown = [&](const json& more) {
    return t.post("/apply-template", openai_chat(more))["prompt"].get<std::string>();
  };
  const std::time_t now = std::time(nullptr);
  char day[64];
  std::strftime(day, sizeof day, "%d %b %Y|%b %d %Y||", std::localtime(&now));
  CHECK(contains(shown(json::object()), day));
  const json tool = {{"type", "function"}, {"function", {{"name", "look_up"}}}};
  CHECK(contains(shown({{"tools", {tool}}}), "\"name\": \"look_up\""));
}

TEST_CASE("api/openai: each part of a content begins on a new line") {
  TestApi t;
  const json parts = {{{"type", "text"}, {"text", "What is"}},
                      {{"type", "text"}, {"text", "the best book?"}}};
  const json asked = {{"messages", {{{"role", "user"}, {"content", parts}}}}};
  t.post("/v1/chat/completions", asked);
  CHECK(contains(t.prompt, "[user]What is\nthe best book?\n"));
}

TEST_CASE("api/openai: a thought that the template always opens is closed if thinking is off") {
  TestApi t(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}");
  const json off = {{"enable_thinking", false}};
  const auto shown = [&](const json& more) {
    return t.post("/apply-template", openai_chat(more))["prompt"].get<std::string>();
  };
  CHECK(shown(json::object()).ends_with("<think>\n"));
  CHECK(shown({{"chat_template_kwargs", off}}).ends_with("<think>\n</think>"));
  // A user's mark opens no thought.
  TestApi plain(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[a]{% endif %}");
  const json asked = {{"messages", json::array({{{"role", "user"}, {"content", "Say <think>"}}})},
                      {"chat_template_kwargs", off}};
  CHECK(plain.post("/apply-template", asked)["prompt"].get<std::string>().ends_with("<think>[a]"));
  const json message =
      t.post("/v1/chat/completions",
             openai_chat({{"chat_template_kwargs", off}}))["choices"][0]["message"];
  CHECK(message["content"] == "Hello");
  CHECK(!message.contains("reasoning_content"));
}

TEST_CASE("api: a prompt that is too long names what chose the context") {
  TestApi t;
  std::string longer;
  for (int i = 0; i < 600; ++i) longer += "cat ";
  const auto message = [&] {
    return t.post("/v1/completions", {{"prompt", longer}}, 400)["error"]["message"]
        .get<std::string>();
  };
  CHECK(contains(message(), "a larger --ctx if the model supports it"));
  const auto small = std::make_shared<ServedModel>(*t.api.model({}));
  small->memory_chose_context = true;
  t.api.model = [&](const ModelWish&) { return small; };
  CHECK(contains(message(), "more free memory"));
  CHECK(!contains(message(), "if the model supports it"));
}

TEST_CASE("api: missing memory names --ctx; a text that is too long stays as it is") {
  const auto of = [](Exit code, int64_t need, int64_t have) {
    try {
      advised([&]() -> int { throw Error(code, "9.1 MB are wanted", need, have); });
    } catch (const Error& error) {
      CHECK(error.code == code);
      CHECK(error.need == need);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(of(Exit::memory, 0, 0) ==
        "9.1 MB are wanted; start the server with a smaller --ctx to limit the memory of a "
        "request");
  CHECK(of(Exit::memory, 600, 512) == "9.1 MB are wanted");
  CHECK(of(Exit::usage, 0, 0) == "9.1 MB are wanted");
  CHECK(advised([] { return 7; }) == 7);
}
