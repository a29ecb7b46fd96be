// chaski quantize, convert, inspect and tokenize with the real program: results, and outputs that
// cannot be written.
#include <sys/mount.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/kit/program.h"

using namespace chaski::test;
using nlohmann::json;

TEST_CASE("cli/quantize prints sizes, formats and errors, and the result runs") {
  const TempFolder folder;
  const Outcome outcome = chaski_run(
      {"quantize", golden("models/llama_gqa_untied"), folder / "q8.quipu", "--type", "q8"});
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK(outcome.err.empty());
  CHECK(contains(squeezed(outcome.out), "layer.0.attn_q f32 -> q8"));
  CHECK(outcome.out.find("norms and biases keep f32") != std::string::npos);
  CHECK(outcome.out.find("weights 0.31 MB -> 0.08 MB") != std::string::npos);
  CHECK(chaski_run({"inspect", folder / "q8.quipu", "--verify"}).status == 0);

  const Outcome again = chaski_run({"quantize", kStory, folder / "q4.quipu", "--json"});
  CHECK_MESSAGE(again.error_says("(q8) were quantized again, which loses precision twice"),
                again.err);
  const Outcome larger = chaski_run({"quantize", kStory, folder / "f16.quipu", "--type", "f16"});
  CHECK_MESSAGE(larger.error_says("the weights did not get smaller"), larger.err);
  const json report = json::parse(again.out);
  CHECK(report["type"] == "q4");
  CHECK(report["tensors"][0]["from"] == "q8");
  CHECK(report["bytes_after"].get<double>() < report["bytes_before"].get<double>());
  CHECK(!chaski_run({"run", "-m", folder / "q4.quipu", "-p", "Once", "-n", "10"}).out.empty());
}

TEST_CASE("cli/an output that is the input is refused before anything is written") {
  const TempFolder folder;
  const std::string model = folder / "model.quipu";
  std::filesystem::copy_file(kStory, model);
  std::filesystem::permissions(model, std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::filesystem::create_symlink("model.quipu", folder / "symlink.quipu");
  std::filesystem::create_hard_link(model, folder / "hardlink.quipu");
  for (const char* command : {"quantize", "convert"})
    for (const char* out : {"model.quipu", "symlink.quipu", "hardlink.quipu"}) {
      const Outcome outcome = chaski_run({command, model, folder / out});
      CHECK(outcome.status == 2);
      CHECK_MESSAGE(last_line(outcome.err).find("input") != std::string::npos, outcome.err);
      CHECK(read_file(model) == read_file(kStory));
    }
}

TEST_CASE("cli/an output that cannot be written is refused before the model is read") {
  const TempFolder folder;
  const Outcome outcome = chaski_run({"quantize", kStory, folder / "none/out.quipu"});
  CHECK(outcome.status == 5);
  CHECK_MESSAGE(last_line(outcome.err).find("no such file or directory") != std::string::npos,
                outcome.err);
  CHECK(outcome.out.empty());
}

TEST_CASE("cli/a full disk: status 5, the old file is unchanged, no other file is left") {
  const TempFolder folder;
  const std::string disk = folder / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=128k") != 0) {
    std::fprintf(stderr, "SKIPPED: no right to mount a small tmpfs\n");
    return;
  }
  std::ofstream(disk + "/out.quipu") << "GGUF, the old file";
  for (const Arguments& command :
       std::vector<Arguments>{{"quantize", "--type", "q8"}, {"convert"}}) {
    Arguments all = command;
    all.insert(all.end(), {kStory, disk + "/out.quipu"});
    const Outcome outcome = chaski_run(all);
    CHECK(outcome.status == 5);
    CHECK_MESSAGE(last_line(outcome.err).find("out.quipu") != std::string::npos, outcome.err);
    CHECK(read_file(disk + "/out.quipu") == "GGUF, the old file");
    CHECK(std::distance(std::filesystem::directory_iterator(disk), {}) == 1);
  }
  ::umount(disk.c_str());
}

TEST_CASE("cli/convert to GGUF and back keeps every weight and the text") {
  const TempFolder folder;
  CHECK(chaski_run({"convert", kStory, folder / "a.quipu"}).status == 0);
  CHECK(chaski_run({"convert", folder / "a.quipu", folder / "b.gguf"}).status == 0);
  CHECK(chaski_run({"convert", folder / "b.gguf", folder / "c.quipu", "-t", "3"}).status == 0);
  const std::string text = chaski_run(run_story({"--seed", "5", "-n", "60"})).out;
  for (const char* file : {"a.quipu", "b.gguf", "c.quipu"})
    CHECK(chaski_run(
              {"run", "-m", folder / file, "-p", "Once upon a time", "--seed", "5", "-n", "60"})
              .out == text);
  CHECK(json::parse(chaski_run({"inspect", folder / "a.quipu", "--json"}).out)["tensors"] ==
        json::parse(chaski_run({"inspect", folder / "c.quipu", "--json"}).out)["tensors"]);
}

TEST_CASE("cli/convert: a model is replaced with a note, and another file is not") {
  const TempFolder folder;
  for (const std::string name : {"a.quipu", "a.gguf"}) {
    CHECK(!chaski_run({"convert", kStory, folder / name}).error_says("replaced"));
    const Outcome again = chaski_run({"convert", kStory, folder / name});
    CHECK(again.status == 0);
    CHECK_MESSAGE(again.error_says(name + ": the model that was there is replaced\n"), again.err);
    const std::string notes = write_file(folder / ("notes_" + name), "precious");
    check_one_line(chaski_run({"convert", kStory, notes}), 2,
                   notes + ": the file exists and is not a model, expected another name");
    CHECK(read_file(notes) == "precious");
  }
}

// Folders packed by other programs convert to .quipu. Conversion to GGUF is refused, because it
// cannot store them.
TEST_CASE("cli/packed folders are converted and keep their formats") {
  TempFolder folder;
  for (const auto& [name, format] :
       {std::pair("bnb4", "nf4"), {"fp8", "f8s"}, {"nvfp4", "nvfp4s"}, {"gptq4_mixed", "q5_0"}}) {
    CAPTURE(name);
    const std::string packed = golden(std::string("packed/") + name);
    const Outcome made = chaski_run({"convert", packed, folder / "model.quipu"});
    CHECK_MESSAGE(made.status == 0, made.err);
    const std::string table = chaski_run({"inspect", folder / "model.quipu", "--verify"}).out;
    CHECK_MESSAGE(table.find(format) != std::string::npos, table);
    const Outcome refused = chaski_run({"convert", packed, folder / "model.gguf"});
    CHECK_MESSAGE(refused.status == 3, refused.err);
    CHECK(refused.err.find("which GGUF cannot store") != std::string::npos);
  }
}

TEST_CASE("cli/convert --layout: writes a folder that chaski can read, and overwrites none") {
  const TempFolder folder;
  REQUIRE(chaski_run({"quantize", kStory, folder / "a.quipu", "--type", "q4_0", "--fast",
                      "--keep-above", "1"})
              .status == 0);
  for (const std::string layout : {"gptq", "awq"}) {
    const std::string out = folder / layout;
    const Outcome made = chaski_run({"convert", folder / "a.quipu", out, "--layout", layout});
    CHECK_MESSAGE(made.status == 0, made.err);
    CHECK_MESSAGE(made.error_says(out + ": weights need "), made.err);
    CHECK_MESSAGE(made.error_says(": model.embed_tokens.weight was stored as q8, now as f32 ("),
                  made.err);
    CHECK_MESSAGE(
        made.error_says("), because the layout stores embedding and head only as floats\n"),
        made.err);
    CHECK(json::parse(read_file(out + "/config.json"))["torch_dtype"] == "float32");
    CHECK(json::parse(
              chaski_run({"inspect", out, "--json"}).out)["metadata"]["model.block_count"] == 6);
    // An existing model is not overwritten.
    const Outcome again = chaski_run({"convert", folder / "a.quipu", out, "--layout", layout});
    CHECK(again.status == 2);
    CHECK_MESSAGE(again.error_says("folder already holds a model"), again.err);
    // The folder has the model's tokenizer in Hugging Face's files.
    const std::string text =
        "Once, 12 dogs'll  run.\n\nThey\tsay \u00e9\u4f60\U0001f600 <|endoftext|> ";
    const auto tokens = [&](const std::string& model) {
      return chaski_run({"tokenize", "-m", model, "-p", text, "--json"}).out;
    };
    CHECK(json::parse(tokens(out))["tokens"].size() > 10);
    CHECK(tokens(out) == tokens(folder / "a.quipu"));
    const json tokenizer = json::parse(read_file(out + "/tokenizer.json"));
    CHECK(tokenizer["model"]["vocab"].size() == 3072);
    CHECK(tokenizer["model"]["merges"].size() == 2815);
    CHECK(tokenizer["added_tokens"][0]["content"] == "<|endoftext|>");
    CHECK(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"] == "<|endoftext|>");
    CHECK(json::parse(read_file(out + "/tokenizer_config.json"))["model_max_length"] == 512);
    CHECK(chaski_run({"run", "-m", out, "-p", "Once", "-n", "3"}).status == 0);
    CHECK(chaski_run({"plan", out}).status == 0);
  }
  // Weights of another model stop it; existing tokenizer files are kept and named.
  const std::string full = folder / "full";
  std::filesystem::create_directory(full);
  write_file(full + "/tokenizer.json", "{}");
  write_file(full + "/model-00001-of-00002.safetensors", "x");
  const Outcome mixed = chaski_run({"convert", folder / "a.quipu", full, "--layout", "gptq"});
  CHECK(mixed.status == 2);
  CHECK_MESSAGE(
      mixed.error_says(
          "full: folder holds other files (model-00001-of-00002.safetensors), expected a new "
          "or an empty folder"),
      mixed.err);
  std::filesystem::remove(full + "/model-00001-of-00002.safetensors");
  write_file(full + "/merges.txt", "");
  const Outcome over = chaski_run({"convert", folder / "a.quipu", full, "--layout", "gptq"});
  CHECK(over.status == 0);
  CHECK_MESSAGE(over.error_says("in the folder before and may belong to another model\n"),
                over.err);
  CHECK_MESSAGE(over.error_says("merges.txt"), over.err);
  CHECK_MESSAGE(over.error_says("tokenizer.json"), over.err);
  CHECK(read_file(full + "/tokenizer.json") == "{}");
  // A failed conversion leaves no folder.
  const Outcome cut =
      Program({"-c", "ulimit -f 8; trap '' XFSZ; exec " + chaski_binary() + " convert " +
                         folder / "a.quipu" + " " + folder / "cut" + " --layout gptq"},
              "", "", "/bin/sh")
          .wait();
  CHECK_MESSAGE(cut.status == 5, cut.err);
  CHECK_FALSE(std::filesystem::exists(folder / "cut"));
  // A separate head is stored as floats, too.
  REQUIRE(chaski_run({"quantize", golden("models/llama_gqa_untied"), folder / "b.quipu", "q8"})
              .status == 0);
  const Outcome both =
      chaski_run({"convert", folder / "b.quipu", folder / "both", "--layout", "gptq"});
  CHECK_MESSAGE(both.error_says("; model.embed_tokens.weight was stored as q8, now as f32 ("),
                both.err);
  CHECK_MESSAGE(both.error_says(": lm_head.weight was stored as q8, now as f32 ("), both.err);
  const Outcome floats =
      chaski_run({"convert", golden("models/llama_f16"), folder / "d", "--layout", "awq"});
  CHECK(floats.status == 3);
  CHECK_MESSAGE(
      floats.error_says("'chaski quantize IN OUT --type q4_0 --keep-above 1' of it makes"),
      floats.err);
  // A model without a tokenizer: a note says how to add one, and plan says that it cannot run.
  REQUIRE(chaski_run({"quantize", golden("models/llama_gqa_untied"), folder / "bare.quipu", "q4_0",
                      "--keep-above", "1"})
              .status == 0);
  const Outcome bare =
      chaski_run({"convert", folder / "bare.quipu", folder / "bare", "--layout", "gptq"});
  CHECK_MESSAGE(bare.status == 0, bare.err);
  CHECK_MESSAGE(bare.error_says("bare has no tokenizer (the model has no tokenizer); copy "
                                "tokenizer.json and tokenizer_config.json from the model's"),
                bare.err);
  const Outcome plan = chaski_run({"plan", folder / "bare"});
  CHECK(plan.status == 3);
  CHECK_MESSAGE(
      plan.out.find("\nit does not run, because it has no tokenizer (a tokenizer.json in "
                    "its folder would do); as for memory, it fits, ") != std::string::npos,
      plan.out);
  CHECK(json::parse(chaski_run({"plan", folder / "bare", "--json"}).out)["starts"] == false);
  check_one_line(chaski_run({"convert", kStory, folder / "b.gguf", "--layout", "gptq"}), 2,
                 "expected a folder with --layout gptq");
  check_one_line(chaski_run({"convert", folder / "a.quipu", folder / "c", "--layout", "exl2"}), 2,
                 "bf16, fp8, gptq");
}

TEST_CASE("cli/convert --layout bf16 and fp8: folders that run, with a note about rounding") {
  const TempFolder folder;
  REQUIRE(chaski_run({"quantize", kStory, folder / "f32.quipu", "f32"}).status == 0);
  const auto tokens = [&](const std::string& model) {
    return chaski_run({"tokenize", "-m", model, "-p", "Once upon a t\u00efme", "--ids"}).out;
  };
  for (const std::string layout : {"bf16", "fp8"}) {
    const std::string out = folder / layout;
    const Outcome made =
        chaski_run({"convert", folder / "f32.quipu", out, "--layout", layout, "--json"});
    CHECK_MESSAGE(made.status == 0, made.err);
    CHECK_MESSAGE(made.error_says(" weights in bf16 were rounded to it\n"), made.err);
    CHECK(made.error_says("42 matrices are fp8, 0 of them without an error; mean relative") ==
          (layout == "fp8"));
    const json result = json::parse(made.out),
               config = json::parse(read_file(out + "/config.json"));
    CHECK(result["rounded"].get<int64_t>() > 0);
    CHECK(result.contains("error") == (layout == "fp8"));
    if (layout == "fp8") CHECK(result["error"].get<double>() < 1e-3);
    CHECK(config["torch_dtype"] == "bfloat16");
    CHECK(config.contains("quantization_config") == (layout == "fp8"));
    CHECK(tokens(out) == tokens(kStory));
    CHECK(chaski_run({"run", "-m", out, "-p", "Once", "-n", "3"}).status == 0);
    const Outcome again = chaski_run({"convert", folder / "f32.quipu", out, "--layout", layout});
    CHECK(again.status == 2);
    CHECK_MESSAGE(again.error_says("folder already holds a model"), again.err);
  }
  // A model without rounding, and its own files.
  std::filesystem::copy(folder / "bf16", folder / "theirs");
  write_file(folder / "theirs/chat_template.jinja", "{{ messages }}");
  const Outcome copy =
      chaski_run({"convert", folder / "theirs", folder / "copy", "--layout", "bf16"});
  CHECK_MESSAGE(copy.status == 0, copy.err);
  CHECK_MESSAGE(copy.error_says("copy: bf16 represents all of the "), copy.err);
  for (const char* file : {"model.safetensors", "config.json", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja"})
    CHECK(read_file(folder / "copy/" + file) == read_file(folder / "theirs/" + file));
  // A failed conversion leaves no folder.
  const Outcome cut =
      Program({"-c", "ulimit -f 8; trap '' XFSZ; exec " + chaski_binary() + " convert " +
                         folder / "f32.quipu" + " " + folder / "cut" + " --layout fp8"},
              "", "", "/bin/sh")
          .wait();
  CHECK_MESSAGE(cut.status == 5, cut.err);
  CHECK_MESSAGE(cut.error_says("cut/model.safetensors: file too large"), cut.err);
  CHECK_FALSE(std::filesystem::exists(folder / "cut"));
  const Outcome none =
      chaski_run({"convert", golden("models/gpt2"), folder / "g", "--layout", "fp8"});
  CHECK(none.status == 3);
  CHECK_MESSAGE(none.error_says("expected one for fp8; --layout bf16 writes the model"), none.err);
}

TEST_CASE("cli/convert refuses outputs that end neither in .quipu nor in .gguf") {
  const TempFolder folder;
  for (const char* name : {"a.txt", "a", "a.quipu.bak"}) {
    check_one_line(chaski_run({"convert", kStory, folder / name}), 2,
                   "expected one that ends in .quipu or .gguf");
    CHECK(!std::filesystem::exists(folder / name));
  }
}

TEST_CASE("cli/the columns of inspect are aligned") {
  const TempFolder folder;
  const std::string model = folder / "model";
  std::filesystem::copy(golden("models/qwen2"), model);
  const std::string table = chaski_run({"inspect", model}).out;
  std::istringstream lines(table);
  std::vector<size_t> bytes_at;
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find(" bytes"); line.starts_with("  ") && at == line.size() - 6)
      bytes_at.push_back(at);
  CHECK(bytes_at.size() > 10);
  CHECK(
      std::all_of(bytes_at.begin(), bytes_at.end(), [&](size_t at) { return at == bytes_at[0]; }));
}

TEST_CASE("cli/inspect and its damaged file") {
  const TempFolder folder;
  CHECK(chaski_run({"convert", kStory, folder / "a.quipu"}).status == 0);
  const json object =
      json::parse(chaski_run({"inspect", folder / "a.quipu", "--json", "--verify"}).out);
  CHECK(object["verified"] == true);
  CHECK(object["metadata"]["model.block_count"] == 6);
  CHECK(object["metadata"]["tokenizer.add_bos"] == true);
  CHECK(object["bits_per_weight"].get<double>() > 8.5);
  uint64_t bytes = 0;
  for (const json& tensor : object["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
  CHECK(object["weight_bytes"] == bytes);
  const std::string table = chaski_run({"inspect", folder / "a.quipu"}).out;
  CHECK(contains(squeezed(table), "model.block_count 6\n"));
  CHECK(table.find("(3072 items)") != std::string::npos);
  // 1024 tokens x (key + value) x 2 bytes x 6 layers x heads x head dimension
  const int64_t kept = int64_t(object["states"]["bytes_per_1024_tokens"]);
  CHECK(kept == 1024 * 2 * 2 * 6 * object["metadata"]["model.head_count_kv"].get<int64_t>() *
                    object["metadata"]["model.head_dim"].get<int64_t>());
  CHECK(table.find("\nthe states of a sequence take, with --kv f16, " + std::to_string(kept) +
                   " bytes per 1024 tokens of context\n") != std::string::npos);
  const std::string windows = chaski_run({"inspect", golden("models/mistral_window")}).out;
  CHECK(windows.find(" bytes in windows") != std::string::npos);

  std::string damaged = read_file(folder / "a.quipu");
  damaged[damaged.size() - 100] ^= 1;
  std::ofstream(folder / "b.quipu", std::ios::binary) << damaged;
  CHECK(chaski_run({"inspect", folder / "b.quipu"}).status == 0);
  check_one_line(chaski_run({"inspect", folder / "b.quipu", "--verify"}), 3,
                 "b.quipu: the file is damaged: tensor ");
  check_one_line(chaski_run({"inspect", golden("gguf/tiny_llama_q8_0.gguf"), "--verify"}), 2,
                 "expected a .quipu file");
}

TEST_CASE("cli/tokenize and back") {
  const std::string text = "Once upon a t\xc3\xafme, <s> there\nwas \xf0\x9f\xa6\x99.";
  const Outcome ids = chaski_run({"tokenize", "-m", kStory, "--ids"}, text);
  CHECK_MESSAGE(ids.status == 0, ids.err);
  Arguments back = {"tokenize", "-m", kStory, "--decode"};
  std::istringstream words(ids.out);
  for (std::string id; words >> id;) back.push_back(id);
  CHECK(chaski_run(back).out == text);
  const json object = json::parse(chaski_run({"tokenize", "-m", kStory, "--json", "-p", text}).out);
  CHECK(object["count"] == back.size() - 4);
  CHECK(object["tokens"][0]["control"] == true);
  check_one_line(chaski_run({"tokenize", "-m", kStory, "--decode", "3072"}), 2, "3072");
}
