// What requests ask of models in each dialect: how long they stay loaded, and embeddings.
#include "ggml-like-tensor/file/quipu.h"
#include "tests/api/api_kit.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

json hello(json more = json::object()) {
  json all = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 8}};
  all.update(more);
  return all;
}

}  // namespace

TEST_CASE("api/models: ttl and keep_alive are read in every dialect") {
  TestApi test;
  const auto keep = [&](const std::string& path, json body) {
    test.post(path, body);
    return test.wish.keep;
  };
  CHECK(!keep("/v1/chat/completions", hello()));
  CHECK(keep("/v1/chat/completions", hello({{"ttl", 90}})) == 90);
  CHECK(keep("/v1/messages", hello({{"ttl", 1.5}})) == 1.5);
  CHECK(keep("/v1/responses", {{"input", "Hi"}, {"ttl", 0}}) == 0);
  CHECK(keep("/completion", {{"prompt", "Hi"}, {"ttl", -1}}) == -1);
  const std::pair<json, double> values[] = {
      {"5m", 300}, {"1h30m", 5400}, {"500ms", 0.5}, {"0", 0},        {"1.5h", 5400},
      {"-1", -1},  {"-5m", -1},     {30, 30},       {"forever", -1}, {0, 0}};
  for (const auto& [value, seconds] : values) {
    CAPTURE(value);
    json body = hello({{"keep_alive", value}, {"stream", false}});
    body.erase("max_tokens");
    CHECK(keep("/api/chat", body) == seconds);
  }
  for (const json& wrong : {json("soon"), json("5 minutes"), json(""), json("m"), json(true)}) {
    const json got = test.post("/v1/chat/completions", hello({{"keep_alive", wrong}}), 400);
    CHECK(got["error"]["param"] == "keep_alive");
  }
}

TEST_CASE("api/models: a request of ollama without a prompt loads or unloads its model") {
  TestApi test;
  const json load = {{"model", "story"}, {"stream", false}, {"keep_alive", "5m"}};
  CHECK(test.post("/api/generate", load)["done_reason"] == "load");
  CHECK(test.wish.keep == 300);
  CHECK(test.unloaded.empty());
  for (const char* path : {"/api/generate", "/api/chat"}) {
    test.unloaded = "", test.wish = {};
    const json unload = {{"model", "story"}, {"stream", false}, {"keep_alive", 0}};
    CHECK(test.post(path, unload)["done_reason"] == "unload");
    CHECK(test.unloaded == "story");
    CHECK(test.wish.name.empty());  // it was not loaded for that
  }
  // What else it sets is checked, before the model is unloaded.
  test.unloaded = "";
  for (const auto& [path, field, value] :
       {std::tuple{"/api/chat", "function_call", json::object()},
        std::tuple{"/api/chat", "top_logprobs", json(1)},
        std::tuple{"/api/chat", "think", json("much")}, std::tuple{"/api/generate", "raw", json(1)},
        std::tuple{"/api/generate", "options", json{{"num_predict", "x"}}}})
    for (const json& keep : {json(0), json(300)})
      CHECK_MESSAGE(
          contains(test.post(path, {{"keep_alive", keep}, {field, value}}, 400).dump(), field),
          path);
  CHECK(test.unloaded.empty());
  CHECK(test.post("/api/chat", {{"stream", false}, {"colour", 1}})["warnings"].size() == 1);
  CHECK(contains(
      test.post("/api/chat", {{"model", "x"}, {"keep_alive", 0}}, 404)["error"].get<std::string>(),
      "x"));
}

TEST_CASE("api/models: embeddings as numbers or base64, of texts or tokens") {
  TestApi test;
  CHECK(contains(
      test.post("/v1/embeddings", {{"input", "a"}}, 400)["error"]["message"].get<std::string>(),
      "--embedding-model"));
  test.embeds = true;
  json got = test.post("/v1/embeddings", {{"input", {"A cat.", "A dog."}}, {"ttl", 7}});
  CHECK(test.prompt == "A dog.");
  CHECK(test.wish.keep == 7);
  CHECK(test.wish.name == "story");
  REQUIRE(got["data"].size() == 2);
  CHECK(got["data"][1]["index"] == 1);
  CHECK(got["data"][1]["embedding"] == json::parse("[0.6,0,0.8]"));
  CHECK(got["usage"]["prompt_tokens"] == got["usage"]["total_tokens"]);
  got = test.post("/v1/embeddings", {{"input", "A cat."}, {"encoding_format", "base64"}});
  CHECK(got["data"][0]["embedding"] == "mpkZPwAAAADNzEw/");
  const auto tokens = TestApi::engine()->tokenizer().encode("A cat.");
  CHECK(test.post("/v1/embeddings", {{"input", tokens}})["usage"]["prompt_tokens"] ==
        tokens.size());
  CHECK(test.post("/v1/embeddings", {{"input", {tokens, tokens}}})["data"].size() == 2);
  CHECK(test.prompt == "A cat.");
  std::string text;
  for (int i = 0; i < 600; ++i) text += "cat ";
  CHECK(test.post("/v1/embeddings", {{"input", text}}, 400)["error"]["code"] ==
        "context_length_exceeded");
  CHECK(test.post("/v1/embeddings", {{"input", "a"}, {"dimensions", 3}}, 400)["error"]["param"] ==
        "dimensions");

  got = test.post("/api/embed", {{"model", "story"}, {"input", text}});  // cut to the context
  CHECK(got["prompt_eval_count"] == TestApi::engine()->context_length());
  CHECK(got["embeddings"] == json::parse("[[1,0,0]]"));
  test.post("/api/embed", {{"model", "story"}, {"input", text}, {"truncate", false}}, 400);
  got = test.post("/api/embeddings", {{"model", "story"}, {"prompt", "A cat."}});
  CHECK(got["embedding"] == json::parse("[0.6,0,0.8]"));
  // An embedding of a part of the text is none.
  test.late = true;
  const json body = {{"model", "story"}, {"input", "A cat."}, {"prompt", "A cat."}};
  for (const char* path : {"/v1/embeddings", "/api/embed", "/api/embeddings"})
    CHECK_MESSAGE(contains(test.post(path, body, 503).dump(), "--max-seconds"), path);
}

TEST_CASE("api/models: a GGUF file's name for its mixture of formats is shown") {
  ModelSource source = source_of(open_quipu(kStory));
  const std::string most = facts_of(source, 0).format;
  source.meta.set_int("gguf.general.file_type", 15);
  CHECK(facts_of(source, 0).format == most);  // the formats may have changed since
  source.path = "story.gguf";
  CHECK(facts_of(source, 0).format == most);
  for (TensorSource& tensor : source.tensors)
    tensor.info.format = Format::q4_k, tensor.info.cols = 256;
  CHECK(facts_of(source, 0).format == "q4_k_m");
  source.meta.set_int("gguf.general.file_type", 1);
  CHECK(facts_of(source, 0).format == "q4_k");
}
