// llama-server's interface without a socket: forms of prompts, chosen fields, timings.
#include "tests/api/api_kit.h"

using namespace chaski;
using namespace chaski::test;

TEST_CASE("api/llama-server: several prompts have a list of answers, one has an object") {
  TestApi t;
  const json tokens = TestApi::engine()->tokenizer().encode("A dog");
  const json third = {{"prompt_string", "C"}};
  const json many = t.post("/completion", {{"prompt", {tokens, "A cat", third}}});
  REQUIRE(many.size() == 3);
  for (size_t i = 0; i < many.size(); ++i) CHECK(many[i]["index"] == i);
  CHECK(t.post("/completion", {{"prompt", {"A"}}})["content"] == "Hello");
  t.post("/completion", {{"prompt", {tokens[0], " and ", tokens[1]}}});
  CHECK(contains(t.prompt, " and "));
  const TestReply& stream =
      t.call("POST", "/completion", {{"prompt", {"A", "B"}}, {"stream", true}});
  CHECK(contains(stream.body, R"("index":1)"));
  CHECK(t.post("/completion", {{"prompt", {{"prompt_string", "A"}, {"multimodal_data", "x"}}}},
               400)["error"]["param"] == "prompt.multimodal_data");
}

TEST_CASE("api/llama-server: a response has the settings, or only the fields that are asked for") {
  TestApi t;
  const json all = t.post(
      "/completion",
      {{"prompt", "A"}, {"n_predict", 7}, {"seed", 3}, {"logit_bias", {{5, -1.5}, {6, false}}}});
  CHECK(all["generation_settings"]["n_predict"] == 7);
  CHECK(all["generation_settings"]["seed"] == 3);
  CHECK(all["generation_settings"]["logit_bias"] ==
        json{{{"bias", -1.5}, {"token", 5}}, {{"bias", false}, {"token", 6}}});
  CHECK(contains(all["prompt"].get<std::string>(), "A"));
  const json few = t.post(
      "/completion",
      {{"prompt", "A"}, {"n_predict", 7}, {"response_fields", {"content", "timings/prompt_n"}}});
  CHECK(few.size() == 2);
  CHECK(few["timings/prompt_n"] == all["timings"]["prompt_n"]);
}

TEST_CASE("api/llama-server: timings count all answers, and come with each part if asked for") {
  TestApi t;
  const json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const json one = t.post("/v1/chat/completions", {{"messages", messages}})["timings"],
             two = t.post("/v1/chat/completions", {{"messages", messages}, {"n", 2}})["timings"];
  CHECK(two["predicted_n"] == 2 * one["predicted_n"].get<int>());
  CHECK(two["prompt_n"] == one["prompt_n"]);
  CHECK(two["predicted_ms"] == one["predicted_ms"]);
  const TestReply& stream = t.call(
      "POST", "/completion", {{"prompt", "A"}, {"stream", true}, {"timings_per_token", true}});
  CHECK(contains(stream.body, R"("stop":false,"id_slot":-1)"));
  CHECK(stream.body.find("predicted_per_second") != stream.body.rfind("predicted_per_second"));
}

TEST_CASE("api/llama-server: the time limit of an answer is named, and any seed of 64 bits works") {
  TestApi t;
  t.finish = Finish::interrupted;
  for (const char* path : {"/completion", "/v1/completions"}) {
    const json cut = t.post(path, {{"prompt", "A"}});
    REQUIRE(cut["warnings"].size() == 1);
    CHECK(contains(cut["warnings"][0].get<std::string>(), "--max-seconds"));
  }
  const uint64_t last = std::numeric_limits<uint64_t>::max();
  CHECK(t.post("/completion", {{"prompt", "A"}, {"seed", last}})["seed"] == last);
  CHECK(t.post("/completion", {{"prompt", "A"}, {"seed", -2}}, 400)["error"]["param"] == "seed");
}

TEST_CASE("api/llama-server: a prompt is counted and shown as it is generated after") {
  TestApi t;
  const json messages = {{{"role", "user"}, {"content", "Hi"}},
                         {{"role", "assistant"}, {"content", "Hel"}}};
  const json shown = t.post("/apply-template", {{"messages", messages}});
  CHECK(shown["prompt"].get<std::string>().ends_with("[assistant]Hel"));
  t.post("/v1/chat/completions", {{"messages", messages}, {"continue_final_message", true}});
  const json count = t.post("/v1/chat/completions/input_tokens", {{"messages", messages}});
  CHECK(count["input_tokens"] == TestApi::engine()->tokenizer().encode_prompt(t.prompt).size());
  const json both = {
      {"messages", messages}, {"continue_final_message", true}, {"add_generation_prompt", true}};
  CHECK(t.post("/v1/chat/completions", both, 400)["error"]["param"] == "continue_final_message");
}

TEST_CASE("api/llama-server: /completion reads the text of /apply-template as the chat's tokens") {
  TestApi t;
  const json asked = {{"messages", {{{"role", "user"}, {"content", "A cat sat."}}}}};
  const std::string shown = t.post("/apply-template", asked)["prompt"];
  CHECK(shown == "[user]A cat sat.\n[assistant]");
  const json chat = t.post("/v1/chat/completions", asked),
             text = t.post("/completion", {{"prompt", shown}});
  CHECK(text["tokens_evaluated"] == chat["usage"]["prompt_tokens"]);
  // A control token between two texts
  TestApi other("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}Then");
  const std::string parts = other.post("/apply-template", asked)["prompt"];
  CHECK(parts.ends_with("Then"));
  CHECK(!parts.ends_with(" Then"));
  CHECK(other.post("/completion", {{"prompt", parts}})["tokens_evaluated"] ==
        other.post("/v1/chat/completions", asked)["usage"]["prompt_tokens"]);
}

TEST_CASE(
    "api/llama-server: control tokens in a prompt are read where clients write the template") {
  TestApi t;
  const Tokenizer& tokenizer = TestApi::engine()->tokenizer();
  const std::string text = std::string(tokenizer.raw(tokenizer.bos())) + "A cat";
  const size_t read = tokenizer.encode_prompt("A cat").size(),
               spelled = tokenizer.encode_prompt(text).size();
  REQUIRE(read < spelled);
  const std::pair<const char*, bool> by_default[] = {
      {"/completion", true}, {"/api/generate", true}, {"/v1/completions", false}};
  for (const auto& [path, parses] : by_default) {
    json body = {{"prompt", text}, {"raw", true}, {"stream", false}};
    const auto count = [&] {
      const json got = t.post(path, body);
      if (got.contains("usage")) return got["usage"]["prompt_tokens"].get<size_t>();
      return got[got.contains("prompt_eval_count") ? "prompt_eval_count" : "tokens_evaluated"]
          .get<size_t>();
    };
    CHECK_MESSAGE(count() == (parses ? read : spelled), path);
    body["parse_special"] = !parses;
    CHECK_MESSAGE(count() == (parses ? spelled : read), path);
    body["parse_special"] = 1;
    t.post(path, body, 400);
  }
  const json mixed = t.post("/completion", {{"prompt", {1, text}}});
  CHECK(mixed["tokens_evaluated"] == 1 + tokenizer.encode_with_control(text).size());
}
