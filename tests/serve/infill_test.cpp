// /infill, and /api/generate with a suffix, of a model whose tokenizer has the marks of a hole.
#include <filesystem>

#include "tests/kit/client.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

// A tiny model with a tokenizer of single letters and the marks of Qwen2.5-Coder.
struct HoleModel : TempFolder {
  HoleModel() {
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy("tests/golden/models/qwen2/" + std::string(file), path + "/" + file);
    int id = 0;
    json added = json::array(), vocab = json::object();
    const auto add = [&](const char* token) {
      added.push_back({{"id", id++}, {"content", token}, {"special", true}});
    };
    for (const char* token : {"<unk>", "<s>", "</s>"}) add(token);  // 1 and 2: as config.json says
    for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = id++;
    vocab["\u0120"] = id++;  // a space
    vocab["\u010A"] = id++;  // the end of a line
    for (const char* token : {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}) add(token);
    write_file(path + "/tokenizer.json",
               json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
                    {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                    {"added_tokens", added}}
                   .dump());
  }
};

}  // namespace

TEST_CASE(
    "serve/infill: the text of a hole continues the marks, the text around it and the start") {
  const HoleModel folder;
  const Serving server({"--no-log"}, folder.path);
  // What a client that knows the marks sends itself.
  const auto filled = [&](const std::string& marked) {
    const json tokens =
        server.post("/tokenize", {{"content", marked}, {"parse_special", true}}).json()["tokens"];
    const json answer =
        server
            .post("/completion",
                  {{"prompt", tokens}, {"n_predict", 8}, {"seed", 1}, {"ignore_eos", true}})
            .json();
    CHECK(answer["tokens_predicted"] == 8);
    return answer["content"].get<std::string>();
  };
  const auto infill = [&](json request) {
    request["n_predict"] = 8, request["seed"] = 1, request["ignore_eos"] = true;
    return server.post("/infill", request);
  };
  const json hole = {{"input_prefix", "ab"}, {"input_suffix", "cd"}};
  const std::string text = filled("<|fim_prefix|>ab<|fim_suffix|>cd<|fim_middle|>");
  const HttpResponse whole = infill(hole);
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  CHECK(whole.json()["content"] == text);
  CHECK(whole.json()["prompt"] == "<|fim_prefix|>ab<|fim_suffix|>cd<|fim_middle|>");
  CHECK(!text.empty());

  json streamed = hole, begun = hole, with_files = hole;
  streamed["stream"] = true;
  std::string parts;
  for (const json& event : infill(streamed).events()) parts += event["content"].get<std::string>();
  CHECK(parts == text);
  begun["prompt"] = "e";
  CHECK(infill(begun).json()["content"] ==
        filled("<|fim_prefix|>ab<|fim_suffix|>cd<|fim_middle|>e"));
  with_files["input_extra"] = {{{"filename", "f"}, {"text", "x y"}}};
  CHECK(infill(with_files).json()["content"] ==
        filled("<|fim_prefix|>f\nx y\nab<|fim_suffix|>cd<|fim_middle|>"));
  // A mark in the text around the hole is letters, which this tokenizer does not have.
  CHECK(infill({{"input_prefix", "a<|fim_middle|>b"}}).json()["prompt"] ==
        "<|fim_prefix|>afimmiddleb<|fim_suffix|><|fim_middle|>");
  const json generated =
      server
          .post("/api/generate",
                {{"prompt", "ab"},
                 {"suffix", "cd"},
                 {"stream", false},
                 {"options", {{"num_predict", 8}, {"seed", 1}, {"ignore_eos", true}}}})
          .json();
  CHECK(generated["response"] == text);
  CHECK(infill({{"input_extra", {{{"filename", "f"}}}}}).json()["error"]["param"] ==
        "input_extra[0].text");
}
