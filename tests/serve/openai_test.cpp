// chaski serve: OpenAI's interfaces. Every text is that of chaski run or chat, byte for byte.
#include "engine/session/session.h"
#include "ggml-like-tensor/file/quipu.h"
#include "main/api/routes.h"
#include "tests/kit/client.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

json messages(const std::string& question) {
  return json::array({{{"role", "user"}, {"content", question}}});
}

std::string chat_alone(const std::string& question, const Arguments& more) {
  Arguments all = {"chat", "-m", kStory, "-p", question, "-q", "--json"};
  all.insert(all.end(), more.begin(), more.end());
  return json::parse(chaski_run(all).out)["text"];
}

// A template for the bundled model. It shows tools and has marks for calls. The bundled model never
// writes these marks unless a call is forced.
const std::string kHermes =
    "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}<tool_call>\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}<tool_call>\n"
    "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
    "</tool_call>{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

// Keeps a stream.
struct KeptReply : Reply {
  void whole(int, const char*, const std::string& body) override { text += body; }
  void begin(const char*) override {}
  void part(const std::string& more) override { text += more; }
  void end() override {}
  const std::atomic<bool>& gone() const override { return is_gone; }
  std::string text;
  std::atomic<bool> is_gone = false;
};

const Serving& with_tools() {
  static const TempFolder folder;
  static const Serving server({"--no-log"}, [] {
    ModelSource source = source_of(open_quipu(kStory));
    source.meta.set_str("tokenizer.chat_template", kHermes);
    write_quipu(folder / "hermes.quipu", source, 1);
    return folder / "hermes.quipu";
  }());
  return server;
}

json tool(const std::string& name) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"from", {{"type", "integer"}, {"minimum", 3}, {"maximum", 9}}}}},
              {"required", {"from"}},
              {"additionalProperties", false}}}}}};
}

json tools_request(const json& choice) {
  return {{"messages", messages("Count.")},
          {"seed", 1},
          {"max_tokens", 60},
          {"tools", {tool("count"), tool("sing")}},
          {"tool_choice", choice}};
}

}  // namespace

TEST_CASE("serve/chat completions equal chaski chat -p, whole and streamed") {
  const std::string alone = chat_alone("Tell me of a cat.", {"-n", "24", "--seed", "5"});
  REQUIRE(!alone.empty());
  json request = {{"messages", messages("Tell me of a cat.")}, {"seed", 5}, {"max_tokens", 24}};
  const HttpResponse whole = story_server().post("/v1/chat/completions", request);
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  const json answer = whole.json();
  const json& choice = answer["choices"][0];
  CHECK(choice["message"]["content"] == alone);
  CHECK(choice["finish_reason"] == "length");
  CHECK(answer["usage"]["completion_tokens"] == 24);
  CHECK(answer["usage"]["prompt_tokens"].get<int>() > 4);
  CHECK(answer["usage"]["prompt_tokens_details"].contains("cached_tokens"));
  CHECK(answer["timings"]["predicted_n"] == 24);
  CHECK(answer["object"] == "chat.completion");
  CHECK(!answer.contains("warnings"));

  request["stream"] = true, request["stream_options"] = {{"include_usage", true}};
  const HttpResponse streamed = story_server().post("/v1/chat/completions", request);
  REQUIRE(streamed.status == 200);
  CHECK(streamed.body.ends_with("data: [DONE]\n\n"));
  const auto events = streamed.events();
  std::string text;
  for (const json& event : events)
    if (!event["choices"].empty()) text += event["choices"][0]["delta"].value("content", "");
  CHECK(text == alone);
  CHECK(events[0]["choices"][0]["delta"]["role"] == "assistant");
  CHECK(events[events.size() - 2]["choices"][0]["finish_reason"] == "length");
  CHECK(events.back()["choices"].empty());
  CHECK(events.back()["usage"]["completion_tokens"] == 24);
}

TEST_CASE("serve/completions equal chaski run, with samplers by all names") {
  const auto run = [](const Arguments& more) { return chaski_run(run_story(more)).out; };
  const auto served = [](json request) {
    request["prompt"] = "Once upon a time";
    const HttpResponse response = story_server().post("/v1/completions", request);
    REQUIRE_MESSAGE(response.status == 200, response.body);
    return response.json()["choices"][0]["text"].get<std::string>();
  };
  CHECK(served({{"seed", 3}, {"max_tokens", 20}}) == run({"-n", "20", "--seed", "3", "-q"}));
  CHECK(served({{"seed", 3},
                {"n_predict", 20},
                {"temperature", 1.2},
                {"top_k", 7},
                {"min_p", 0},
                {"repeat_penalty", 1.3},
                {"repeat_last_n", 20},
                {"typical_p", 0.9},
                {"stop", "."},
                {"samplers", {"top_k", "typ_p", "temperature"}},
                {"logit_bias", {{"263", -5}}}}) == run({"-n",
                                                        "20",
                                                        "--seed",
                                                        "3",
                                                        "-q",
                                                        "--temp",
                                                        "1.2",
                                                        "--top-k",
                                                        "7",
                                                        "--min-p",
                                                        "0",
                                                        "--repeat-penalty",
                                                        "1.3",
                                                        "--repeat-last-n",
                                                        "20",
                                                        "--typical",
                                                        "0.9",
                                                        "--stop",
                                                        ".",
                                                        "--samplers",
                                                        "top-k,typical,temperature",
                                                        "--logit-bias",
                                                        "263-5"}));
  CHECK(served({{"seed", 3}, {"max_tokens", 20}, {"regex", "[a-c]{4,9}"}}) ==
        run({"-n", "20", "--seed", "3", "-q", "--regex", "[a-c]{4,9}"}));
  // Several answers have the seeds 3, 4, ...
  const json many =
      story_server()
          .post("/v1/completions",
                {{"prompt", "Once upon a time"}, {"seed", 3}, {"max_tokens", 8}, {"n", 3}})
          .json();
  for (int i = 0; i < 3; ++i)
    CHECK(many["choices"][size_t(i)]["text"] ==
          run({"-n", "8", "--seed", std::to_string(3 + i), "-q"}));
  const json best =
      story_server()
          .post("/v1/completions",
                {{"prompt", "Once upon a time"}, {"seed", 3}, {"max_tokens", 8}, {"best_of", 3}})
          .json();
  CHECK(best["choices"][0]["text"] == run({"-n", "8", "--seed", "3", "-q", "--best-of", "3"}));
}

TEST_CASE("serve/response_format, grammar and logprobs") {
  const json schema = {{"type", "object"},
                       {"properties", {{"a", {{"type", "boolean"}}}}},
                       {"required", {"a"}},
                       {"additionalProperties", false}};
  const json request = {{"messages", messages("A dog.")}, {"seed", 2}, {"max_tokens", 40}};
  json formed = request;
  formed["response_format"] = {{"type", "json_schema"},
                               {"json_schema", {{"name", "x"}, {"schema", schema}}}};
  const json answer = story_server().post("/v1/chat/completions", formed).json();
  const std::string text = answer["choices"][0]["message"]["content"];
  CHECK(text == chat_alone("A dog.", {"-n", "40", "--seed", "2", "--json-schema", schema.dump()}));
  CHECK(json::parse(text)["a"].is_boolean());
  json both = formed;
  both["grammar"] = "root ::= \"a\"";
  const json refused = story_server().post("/v1/chat/completions", both).json();
  CHECK(refused["error"]["param"] == "response_format.json_schema.schema");

  json logged = request;
  logged["logprobs"] = true, logged["top_logprobs"] = 2, logged["max_tokens"] = 5;
  const json scored = story_server().post("/v1/chat/completions", logged).json();
  const json& content = scored["choices"][0]["logprobs"]["content"];
  REQUIRE(content.size() == 5);
  CHECK(content[0]["top_logprobs"].size() == 2);
  CHECK(content[0]["logprob"].get<double>() <= 0);
  logged["stream"] = true;
  size_t streamed = 0;
  for (const json& event : story_server().post("/v1/chat/completions", logged).events())
    if (event["choices"][0]["logprobs"].is_object())
      streamed += event["choices"][0]["logprobs"]["content"].size();
  CHECK(streamed == 5);
}

TEST_CASE("serve/errors name the field, and unknown fields become warnings") {
  const json good = {{"messages", messages("A dog.")}, {"max_tokens", 2}, {"seed", 1}};
  const auto error = [&](const json& changes) {
    json request = good;
    request.merge_patch(changes);
    const HttpResponse response = story_server().post("/v1/chat/completions", request);
    CHECK_MESSAGE(response.status == 400, response.body);
    return response.json()["error"];
  };
  CHECK(error({{"temperature", "hot"}})["param"] == "temperature");
  CHECK(error({{"temperature", -1}})["message"] ==
        "temperature is -1, expected a number, 0 to 100");
  CHECK(error({{"top_k", -5}})["param"] == "top_k");
  CHECK(error({{"max_tokens", 1.5}})["param"] == "max_tokens");
  CHECK(error({{"n", 0}})["param"] == "n");
  CHECK(error({{"stop", {1}}})["param"] == "stop[0]");
  CHECK(error({{"logit_bias", {{"", 1}}}})["param"] == "logit_bias.");
  CHECK(error({{"response_format", {{"type", "xml"}}}})["param"] == "response_format.type");
  CHECK(error({{"audio", {{"voice", "x"}}}})["param"] == "audio");
  CHECK(error({{"modalities", {"audio"}}})["param"] == "modalities");
  CHECK(error({{"messages", json::array()}})["param"] == "messages");
  CHECK(error({{"messages",
                {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}})["param"] ==
        "messages[0].content[0].type");
  CHECK(error({{"temp", 1}, {"temperature", 1}})["param"] == "temperature");
  json odd = good;
  odd["colour"] = "red", odd["stream_options"] = {{"speed", 1}};
  const json warned = story_server().post("/v1/chat/completions", odd).json();
  REQUIRE(warned["warnings"].size() == 2);
  CHECK(contains(warned["warnings"][0].get<std::string>(), "colour"));
  CHECK(contains(warned["warnings"][1].get<std::string>(), "stream_options.speed"));

  const auto raw = [](const std::string& body) {
    return story_server().send(request_text("POST", "/v1/chat/completions", body));
  };
  for (const auto& [body, fault] :
       {std::pair(R"({"prompt": "a")",
                  "the body is not JSON, byte 15: found the end of the text, expected '}'"),
        std::pair(R"({"prompt" 1})",
                  "the body is not JSON, byte 11: found number literal, expected ':'"),
        std::pair(R"({"prompt": nul})",
                  R"(the body is not JSON, byte 15: found invalid literal after "prompt": nul})"),
        std::pair(R"({"n": 1e999})", "byte 11: found 1e999, a number that is too large")}) {
    const HttpResponse response = raw(body);
    CHECK(response.status == 400);
    const std::string said = response.json()["error"]["message"];
    CHECK_MESSAGE(said.find(fault) != std::string::npos, said);
  }
  for (const char* body : {"{", "[]", "", "nonsense", "{\"a\":1}", "\xff\xfe"})
    CHECK_MESSAGE(raw(body).status == 400, body);
  CHECK(raw(std::string(200, '[') + std::string(200, ']')).status == 400);
  CHECK(story_server().get("/v1/chat/completions").status == 405);
  CHECK(story_server().get("/nothing").status == 404);
  json other = good;
  other["model"] = "gpt-9";
  const HttpResponse absent = story_server().post("/v1/chat/completions", other);
  CHECK(absent.status == 404);
  CHECK(absent.json()["error"]["code"] == "model_not_found");
  for (const char* path : {"/v1/embeddings", "/v1/rerank"}) {
    const HttpResponse response = story_server().post(path, {{"input", "x"}});
    CHECK(response.status == 400);
    CHECK(response.json()["error"]["code"] == "unsupported_model");
  }
}

TEST_CASE("serve/a text that is too long fails alone with both numbers") {
  std::string longer;
  for (int i = 0; i < 600; ++i) longer += "cat ";
  for (const auto& [path, body] : std::vector<std::pair<std::string, json>>{
           {"/v1/chat/completions", {{"messages", messages(longer)}}},
           {"/v1/completions", {{"prompt", longer}}}}) {
    const HttpResponse response = story_server().post(path, body);
    CHECK_MESSAGE(response.status == 400, response.body);
    const json error = response.json()["error"];
    CHECK(error["code"] == "context_length_exceeded");
    CHECK(error["n_prompt_tokens"].get<int>() > 600);
    CHECK(error["n_ctx"] == 512);
    CHECK(contains(error["message"].get<std::string>(), "512"));
  }
}

TEST_CASE("serve/tools: forced calls are whole, streamed with id and name first") {
  for (const json& choice :
       {json("required"), json{{"type", "function"}, {"function", {{"name", "sing"}}}}}) {
    json request = tools_request(choice);
    const HttpResponse whole = with_tools().post("/v1/chat/completions", request);
    REQUIRE_MESSAGE(whole.status == 200, whole.body);
    const json first = whole.json()["choices"][0];
    REQUIRE_MESSAGE(first["message"].contains("tool_calls"), whole.body);
    const json call = first["message"]["tool_calls"][0];
    CHECK(first["finish_reason"] == "tool_calls");
    CHECK(first["message"]["content"].is_null());
    if (choice.is_object()) CHECK(call["function"]["name"] == "sing");
    const json arguments = json::parse(call["function"]["arguments"].get<std::string>());
    CHECK(arguments["from"].get<int>() >= 3);

    request["stream"] = true;
    std::string text;
    json streamed;
    for (const json& event : with_tools().post("/v1/chat/completions", request).events()) {
      const json& delta = event["choices"][0]["delta"];
      if (!delta.contains("tool_calls")) continue;
      const json& part = delta["tool_calls"][0];
      if (streamed.is_null()) {
        streamed = part;
        CHECK(part["function"]["arguments"] == "");
      }
      text += part["function"]["arguments"].get<std::string>();
    }
    CHECK(streamed["id"] == call["id"]);
    CHECK(streamed["function"]["name"] == call["function"]["name"]);
    CHECK(text == call["function"]["arguments"]);
  }
  // The result of a call continues the conversation.
  json more = tools_request("auto");
  more["messages"] = {{{"role", "user"}, {"content", "Count."}},
                      {{"role", "assistant"},
                       {"content", nullptr},
                       {"tool_calls",
                        {{{"id", "call00001"},
                          {"type", "function"},
                          {"function", {{"name", "count"}, {"arguments", "{\"from\": 3}"}}}}}}},
                      {{"role", "tool"}, {"tool_call_id", "call00001"}, {"content", "3 4 5"}}};
  const HttpResponse answered = with_tools().post("/v1/chat/completions", more);
  CHECK_MESSAGE(answered.status == 200, answered.body);
  json wrong = tools_request({{"type", "function"}, {"function", {{"name", "dance"}}}});
  const HttpResponse refused = with_tools().post("/v1/chat/completions", wrong);
  CHECK(refused.status == 400);
  CHECK(refused.json()["error"]["param"] == "tool_choice.function.name");
}

TEST_CASE("serve/responses: items, events in order, and a conversation that continues by id") {
  json request = {{"input", "Tell me of a cat."}, {"seed", 5}, {"max_output_tokens", 24}};
  const HttpResponse whole = story_server().post("/v1/responses", request);
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  const json response = whole.json();
  const std::string alone = chat_alone("Tell me of a cat.", {"-n", "24", "--seed", "5"});
  CHECK(response["output"][0]["content"][0]["text"] == alone);
  CHECK(response["status"] == "incomplete");
  CHECK(response["incomplete_details"]["reason"] == "max_output_tokens");
  CHECK(response["usage"]["output_tokens"] == 24);

  request["stream"] = true;
  const auto events = story_server().post("/v1/responses", request).events();
  std::string text;
  std::vector<std::string> types;
  for (const json& event : events) {
    CHECK(event["sequence_number"] == types.size());
    types.push_back(event["type"]);
    if (types.back() == "response.output_text.delta") text += event["delta"].get<std::string>();
  }
  CHECK(text == alone);
  REQUIRE(types.size() > 8);
  CHECK(std::vector(types.begin(), types.begin() + 5) ==
        std::vector<std::string>{"response.created", "response.in_progress",
                                 "response.output_item.added", "response.content_part.added",
                                 "response.output_text.delta"});
  CHECK(std::vector(types.end() - 4, types.end()) ==
        std::vector<std::string>{"response.output_text.done", "response.content_part.done",
                                 "response.output_item.done", "response.incomplete"});

  const std::string id = response["id"];
  CHECK(story_server().get("/v1/responses/" + id).json() == response);
  const json next = story_server()
                        .post("/v1/responses", {{"input", "And then?"},
                                                {"previous_response_id", id},
                                                {"seed", 5},
                                                {"max_output_tokens", 10}})
                        .json();
  const Outcome chat =
      chaski_run({"chat", "--lines", "-m", kStory, "-q", "--seed", "5", "-n", "24"},
                 "Tell me of a cat.\n/set tokens 10\nAnd then?\n");
  CHECK(chat.out.ends_with(next["output"][0]["content"][0]["text"].get<std::string>() + "\n"));
  CHECK(story_server().send(request_text("DELETE", "/v1/responses/" + id)).status == 200);
  CHECK(story_server().get("/v1/responses/" + id).status == 404);
  CHECK(
      story_server().post("/v1/responses", {{"input", "x"}, {"previous_response_id", id}}).status ==
      404);
}

TEST_CASE("serve/openai: comments of a stream of responses are not in its sequence numbers") {
  bool other_method = false;
  const Endpoint* const responses = find_route("POST", "/v1/responses", &other_method);
  REQUIRE(responses);
  const Endpoint fails = {"POST", "/v1/responses",
                          [](Api&, const Call&, Reply& reply) {
                            reply.begin(kEventStream);
                            for (const char* part : {": 1%\n\n", "data: {}\n\n", ": 2%\n\n"})
                              reply.part(part);
                            throw ApiError(500, "server_error", "broken", "it is broken");
                          },
                          responses->dialect};
  Api api;
  KeptReply reply;
  answer_call(api, fails, {"", ""}, reply);
  CHECK_MESSAGE(contains(reply.text, "\"sequence_number\":1"), reply.text);
}

TEST_CASE("serve/completions: echo with logprobs scores the prompt as the model computes it") {
  const std::string prompt = "Once upon a time there was a little cat in a big house.";
  const json request = {
      {"prompt", prompt}, {"echo", true}, {"logprobs", 2}, {"max_tokens", 3}, {"seed", 1}};
  const json choice = story_server().post("/v1/completions", request).json()["choices"][0];
  const json& logged = choice["logprobs"];
  const std::shared_ptr<Engine> engine = Engine::open({});
  const std::vector<TokenId> tokens = engine->tokenizer().encode_prompt(prompt);
  const std::unique_ptr<Session> session = engine->session();
  const std::span<const float> rows = session->extend(tokens, int(tokens.size()));
  const size_t vocab = size_t(engine->vocab_size());
  REQUIRE(logged["token_logprobs"].size() == tokens.size() + 3);
  CHECK(logged["token_logprobs"][0].is_null());
  for (size_t i = 1; i < tokens.size(); ++i) {
    const LogProbabilities alone =
        log_probabilities(rows.subspan((i - 1) * vocab, vocab), tokens[i], 2);
    CHECK(logged["token_logprobs"][i] == alone.drawn);
    CHECK(logged["top_logprobs"][i].size() == 2);
  }
  json without = request;
  without.erase("echo");
  const json answer = story_server().post("/v1/completions", without).json()["choices"][0];
  CHECK(choice["text"] == prompt + answer["text"].get<std::string>());
  CHECK(logged["text_offset"][tokens.size()] == prompt.size());
  for (size_t i = 0; i < 3; ++i)
    CHECK(logged["token_logprobs"][tokens.size() + i] == answer["logprobs"]["token_logprobs"][i]);
  json scored = request;
  scored["max_tokens"] = 0;
  const json none = story_server().post("/v1/completions", scored).json()["choices"][0];
  CHECK(none["text"] == prompt);
  CHECK(none["logprobs"]["token_logprobs"].size() == tokens.size());
  const std::string longer = prompt + std::string(4000, 'a');
  CHECK(story_server()
            .post("/v1/completions", {{"prompt", longer}, {"echo", true}, {"logprobs", 1}})
            .json()["error"]["code"] == "context_length_exceeded");
}
