// Models that chaski cannot run are refused early, with the missing feature and the nearest
// supported one: by letters, and of architectures by structure. inspect prints the same and shows
// the file.
#include <nlohmann/json.hpp>

#include "ggml-like-tensor/base/nearest.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

// A llama with a tensor of an unknown type and a tensor of three dimensions.
Gguf with_odd_tensors() {
  Gguf g = tiny_llama();
  g.tensor("blk.0.odd.weight", {4, 4}, 7777, floats(16));
  g.tensor("blk.0.experts.weight", {4, 2, 2}, 0, floats(16));
  return g;
}

Gguf of_architecture(const std::string& name) {
  return tiny_llama().drop("general.architecture").str("general.architecture", name);
}

json needs_by_name(const json& report) {
  json needs = json::object();
  for (const json& need : report["needs"]) needs[need["name"].get<std::string>()] = need;
  return needs;
}

json inspected(const std::string& file) {
  const Outcome outcome = chaski_run({"inspect", file, "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  return json::parse(outcome.out);
}

}  // namespace

TEST_CASE("nearest: the smallest edit distance, the first of equals") {
  const std::vector<std::string> known = {"llama", "qwen2", "qwen3", "phi2"};
  CHECK(nearest_name("qwen2moe", known) == "qwen2");
  CHECK(nearest_name("QWEN3", known) == "qwen3");
  CHECK(nearest_name("qwen", known) == "qwen2");
  CHECK(nearest_name("", known) == "phi2");
  CHECK(nearest_name(std::string(100000, 'x'), known) == "llama");
  CHECK(nearest_name("hpi2", {"chip2", "phi2"}) == "phi2");  // two adjacent letters swapped
  CHECK(likely_name("llmaa", known) == "llama");
  CHECK(likely_name("bert", known).empty());
  CHECK(likely_name("--bits", {"--fits", "--size"}).empty());
  CHECK(likely_name("--bize", {"--size"}).empty());
  CHECK(likely_name("--isze", {"--bits", "--size"}) == "--size");
  CHECK(likely_name("--", {"--size"}).empty());
  CHECK(expected_names("phi", known) == "llama, qwen2, qwen3 or phi2 (nearest: phi2)");
}

TEST_CASE("cli/unsupported files are refused in one line, by run and by convert") {
  const TempFolder folder;
  const std::vector<std::pair<Gguf, std::string>> files = {
      {of_architecture("lama9"), "general.architecture is lama9, expected"},
      {of_architecture("rwkv9"),
       " known ones (built most like llama: 100% of the names of its tensors are the same)"},
      {tiny_llama().drop("tokenizer.ggml.model").str("tokenizer.ggml.model", "fugu"),
       "tokenizer.ggml.model is \"fugu\", expected"},
      {tiny_llama()
           .drop("tokenizer.ggml.model")
           .str("tokenizer.ggml.model", "gpt2")
           .str("tokenizer.ggml.pre", "qwen22"),
       "tokenizer.pre is \"qwen22\", expected a known name (nearest: qwen2)"},
      {tiny_llama().str("llama.rope.scaling.type", "yarm"),
       "model.rope_scaling is yarm, expected none, linear, dynamic, llama3, yarn "
       "or longrope (nearest: yarn)"},
      {with_odd_tensors(), "tensor blk.0.odd.weight has type number 7777, expected F32"},
      {tiny_llama().tensor("blk.0.odd.weight", {32}, 36, std::string(64, '\0')),
       "has type I2_S, expected F32"},
      {tiny_llama().tensor("blk.0.odd.weight", {32}, 36, std::string(64, '\0')),
       "the file does not say which: use the model's safetensors folder or a TQ2_0 file"},
      {tiny_llama().tensor("blk.0.extra.weight", {4}, 0, floats(4)),
       "tensor layer.0.extra has no place in a llama model"},
  };
  for (const auto& [gguf, says] : files) {
    const std::string file = write_file(folder / "model.gguf", gguf.build());
    check_one_line(chaski_run({"run", "-m", file, "-p", "a"}), 3, says);
    check_one_line(chaski_run({"convert", file, folder / "out.quipu"}), 3, says);
    CHECK(!std::filesystem::exists(folder / "out.quipu"));
  }
  Gguf vocabulary = tiny_llama();
  vocabulary.tensors.clear();
  const std::string file = write_file(folder / "vocab.gguf", vocabulary.build());
  for (const char* out : {"out.quipu", "out.gguf"})
    check_one_line(chaski_run({"convert", file, folder / out}), 3, "only a vocabulary");
  check_one_line(chaski_run({"run", "-m", file, "-p", "a"}), 3, "only a vocabulary");
  CHECK(chaski_run({"tokenize", "-m", file, "-p", "a"}).status == 0);  // needs only the vocabulary
}

TEST_CASE("cli/convert to GGUF refuses formats that GGUF does not have, and says what to do") {
  const TempFolder folder;
  for (const char* type : {"q2", "q3", "q4", "q4t", "q4h", "nf4", "q5", "q6", "q8f"}) {
    REQUIRE(
        chaski_run({"quantize", kStory, folder / "small.quipu", "--type", type, "--fast"}).status ==
        0);
    const Outcome outcome = chaski_run({"convert", folder / "small.quipu", folder / "out.gguf"});
    CHECK(outcome.status == 3);
    // The first tensor of the file is the embedding, which keeps at least six bits.
    const std::string first = std::string(type) == "q8f" ? "q8f" : "q6";
    CHECK_MESSAGE(outcome.error_says(" is " + first + ", which GGUF cannot store"), outcome.err);
    CHECK(outcome.error_says("chaski quantize IN OUT --type q4_0"));
    CHECK(!std::filesystem::exists(folder / "out.gguf"));
  }
}

TEST_CASE("cli/inspect lists what a file needs and which of it chaski supports") {
  const TempFolder folder;
  const json story = inspected(kStory);
  CHECK(story["runs"] == true);
  CHECK(!story.contains("refusal"));
  for (const json& need : story["needs"]) CHECK(need["here"] == true);

  const std::string file = write_file(folder / "odd.gguf", with_odd_tensors().build());
  const json odd = inspected(file), needs = needs_by_name(odd);
  CHECK(odd["runs"] == false);
  CHECK(odd["refusal"].get<std::string>().find("type number 7777") != std::string::npos);
  CHECK(needs["llama"]["here"] == true);
  CHECK(needs["number 7777"]["here"] == false);
  CHECK(needs["tensors of 3 dimensions"]["here"] == false);
  CHECK(odd["metadata"]["gguf.llama.block_count"] == 1);
  bool shown = false;
  for (const json& t : odd["tensors"])
    shown |= t["name"] == "blk.0.experts.weight" && t["shape"] == json({2, 2, 4});
  CHECK(shown);
  const Outcome table = chaski_run({"inspect", file});
  CHECK(table.out.find("chaski cannot run it: ") != std::string::npos);
  CHECK(contains(squeezed(table.out), " shape tensors of 3 dimensions missing\n"));

  const json unknown =
      inspected(write_file(folder / "unknown.gguf", of_architecture("rwkv9").build()));
  const json other = needs_by_name(unknown);
  CHECK(other["rwkv9"]["nearest"] == "llama");
  CHECK(unknown["runs"] == false);
}

TEST_CASE("cli/inspect of a model without a tokenizer says so") {
  const json needs = needs_by_name(inspected("tests/golden/models/gemma2"));
  CHECK(needs["any"]["what"] == "tokenizer");
  CHECK(needs["any"]["here"] == false);
}

TEST_CASE("cli/inspect shows a folder of an unsupported architecture") {
  const TempFolder folder;
  write_file(
      folder / "config.json",
      R"({"architectures": ["MamaForCausalLM"], "hidden_size": 4, "rope_scaling": {"type": "warp"}})");
  write_file(folder / "model.safetensors",
             safetensors(R"({"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},)"
                         R"("e": {"dtype": "I8", "shape": [4], "data_offsets": [16, 20]}})",
                         std::string(20, '\1')));
  const json report = inspected(folder.path), needs = needs_by_name(report);
  CHECK(report["metadata"]["hf.hidden_size"] == 4);
  CHECK(needs["MamaForCausalLM"]["here"] == false);
  CHECK(!needs["MamaForCausalLM"].contains("nearest"));  // only a similar word
  CHECK(needs["warp"]["here"] == false);
  CHECK(needs["I8"]["here"] == false);
  CHECK(needs["f32"]["here"] == true);
  const Outcome run = chaski_run({"run", "-m", folder.path, "-p", "a"});
  check_one_line(run, 3, "config.json: architectures[0] is \"MamaForCausalLM\", expected one of ");
  CHECK_MESSAGE(!run.error_says("Llama"), run.err);
}

TEST_CASE("cli/an unknown architecture: run and inspect name the one that is built most like it") {
  const TempFolder folder;
  const auto refused = [](const std::string& model, const std::string& start,
                          const std::string& unknown, const std::string& like) {
    const Outcome run = chaski_run({"run", "-m", model, "-p", "a"});
    check_one_line(run, 3, start + ", expected one of ");
    CHECK_MESSAGE(run.error_says("(built most like " + like + ": "), run.err);
    CHECK(needs_by_name(inspected(model))[unknown]["nearest"] == like);
  };
  const std::string name = "Gpt2000LMHeadModel";  // more like GPT-2's by its letters
  for (const auto& [model, like] :
       std::vector<std::pair<std::string, std::string>>{{"qwen3", "Qwen3ForCausalLM"},
                                                        {"gptneox", "GPTNeoXForCausalLM"},
                                                        {"qwen3moe", "Qwen3MoeForCausalLM"},
                                                        {"apertus", "ApertusForCausalLM"}}) {
    const std::string from = golden("models/") + model;
    json config = json::parse(read_file(from + "/config.json"));
    config["architectures"] = {name};
    write_file(folder / (model + "/config.json"), config.dump());
    std::filesystem::copy(from + "/model.safetensors", folder / (model + "/model.safetensors"));
    refused(folder / model, "architectures[0] is \"" + name + "\"", name, like);
  }
  for (const char* known : {"phi2", "gemma3", "openelm"}) {
    std::string file = read_file(golden("models/") + known + "/model.gguf");
    const std::string unknown = std::string(known).replace(0, 3, "zzz");
    for (size_t at; (at = file.find(known)) != file.npos;)
      file.replace(at, unknown.size(), unknown);
    refused(write_file(folder / "model.gguf", file), "general.architecture is " + unknown, unknown,
            known);
  }
}

TEST_CASE("cli/an unknown architecture without tensors is compared by its keys") {
  const TempFolder folder;
  json config = json::parse(read_file(golden("models/starcoder2/config.json")));
  config["architectures"] = {"OtherForCausalLM"};
  write_file(folder / "config.json", config.dump());
  write_file(folder / "model.safetensors", safetensors("{}", ""));
  const Outcome run = chaski_run({"run", "-m", folder.path, "-p", "a"});
  check_one_line(run, 3, "(built most like Starcoder2ForCausalLM: ");
}

TEST_CASE(
    "cli/models that generate no text: run says what they are, and suggests no similar name") {
  const TempFolder folder;
  const auto refused = [&](const std::string& architecture, const std::string& says) {
    write_file(folder / "m/config.json", R"({"architectures": [")" + architecture + R"("]})");
    write_file(folder / "m/model.safetensors", safetensors("{}", ""));
    const Outcome run = chaski_run({"run", "-m", folder / "m", "-p", "a"});
    check_one_line(run, 3,
                   "m: is " + says + " (" + architecture +
                       "), but chaski runs only models that generate text");
    CHECK_MESSAGE(!run.error_says("nearest"), run.err);
  };
  refused("BertModel", "an embedding model");
  refused("XLMRobertaModel", "an embedding model");
  refused("BertForSequenceClassification", "a classifier or reranker");
  refused("T5ForConditionalGeneration", "an encoder-decoder model");
  refused("WhisperForConditionalGeneration", "a speech recognition model");
  const std::string bert = write_file(folder / "bert.gguf", of_architecture("nomic-bert").build());
  check_one_line(chaski_run({"run", "-m", bert, "-p", "a"}), 3,
                 "is an embedding model (nomic-bert)");
  const json needs = needs_by_name(inspected(bert));
  CHECK(needs["nomic-bert"]["here"] == false);
  CHECK(!needs["nomic-bert"].contains("nearest"));
}
