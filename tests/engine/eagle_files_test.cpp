// Folders of EAGLE heads and layers for one more token: how they are recognized, damaged ones, and
// the program with them.
#include <cmath>
#include <cstring>
#include <set>

#include "engine/requests/generate.h"
#include "tests/kit/eagle_support.h"
#include "tests/kit/program.h"

namespace chaski::test {
namespace {

// The golden folder, opened for its own model.
const DamagedHeads& eagle_folder() {
  static const DamagedHeads folder{golden("heads/eagle"), "/model.safetensors",
                                   [target = open_on_cpu(kEagleTarget, Format::f32)](
                                       const std::string& path) { open_eagle(path, target); }};
  return folder;
}

TEST_CASE("eagle: damaged folders are refused in one line") {
  const std::string config = "/config.json", weights = "/model.safetensors";
  eagle_folder().refused("hidden_size is 32, expected 64, as in ", config, R"("hidden_size": 64)",
                         R"("hidden_size": 32)");
  eagle_folder().refused("vocab_size is 127, expected 128, as in ", config, R"("vocab_size": 128)",
                         R"("vocab_size": 127)");
  eagle_folder().refused("intermediate_size is missing", config, "intermediate_size", "size");
  eagle_folder().refused(R"(hidden_act is "gelu", expected silu)", config, R"("silu")",
                         R"("gelu")");
  eagle_folder().refused("not valid JSON", config, "{", "[");
  eagle_folder().refused(
      "tensor fc.weight has shape (128, 64), expected (64, 128), by config.json and ", weights,
      R"("shape":[64,128])", R"("shape":[128,64])");
  eagle_folder().refused("tensor layers.0.mlp.up_proj.weight has dtype I16, expected F32", weights,
                         R"("layers.0.mlp.up_proj.weight":{"dtype":"F16")",
                         R"("layers.0.mlp.up_proj.weight":{"dtype":"I16")");
  eagle_folder().refused(
      "tensor layers.0.mlp.xp_proj.weight is unexpected, expected only tensors of an EAGLE head "
      "(layers: 1)",
      weights, "layers.0.mlp.up_proj.weight", "layers.0.mlp.xp_proj.weight");
  eagle_folder().refused("tensor embed_tokens.weight has shape (64, 128), expected (128, 64)",
                         weights, R"("shape":[128,64])", R"("shape":[64,128])");
  const auto two_layers = [&](const std::string& folder) {
    const std::string one = R"("num_hidden_layers": 1)";
    std::string text = read_file(folder + config);
    write_file(folder + config,
               text.replace(text.find(one), one.size(), R"("num_hidden_layers": 2)"));
  };
  CHECK(contains(eagle_folder().refusal(two_layers),
                 weights + ": tensor layers.1.input_layernorm.weight is missing"));
  const auto cut = [&](const std::string& folder) {
    write_file(folder + weights, read_file(folder + weights).substr(0, 5000));
  };
  CHECK(contains(eagle_folder().refusal(cut), weights));
  const auto remove = [&](const std::string& folder) { std::filesystem::remove(folder + weights); };
  CHECK(contains(eagle_folder().refusal(remove, Exit::io), weights));
  const auto pickled = [&](const std::string& folder) {
    std::filesystem::rename(folder + weights, folder + "/pytorch_model.bin");
    CHECK(HeadsFolder(folder).is_eagle());
  };
  CHECK(contains(eagle_folder().refusal(pickled),
                 "pytorch_model.bin: is a Python pickle, which can run code, expected "
                 "model.safetensors. To make it, run this in that folder: python3 -c"));
  CHECK(HeadsFolder(golden("heads/eagle")).is_eagle());
  CHECK(HeadsFolder(golden("heads/eagle_bf16")).is_eagle());
  CHECK(!HeadsFolder(golden("heads/medusa")).is_eagle());
  CHECK(!HeadsFolder(kEagleTarget).is_eagle());
  CHECK(!HeadsFolder(kEagleTarget + "/config.json").is_eagle());
}

// Renames a tensor, so that the importer skips it.
void lose_tensor(const std::string& folder, const std::string& name) {
  const std::string text = read_file(folder + kWeights);
  uint64_t bytes = 0;
  std::memcpy(&bytes, text.data(), sizeof bytes);
  std::string header = text.substr(8, bytes);
  const size_t at = header.find('"' + name + '"');
  REQUIRE(at != header.npos);
  header.replace(at + 1, name.size(), "x.rotary_emb.inv_freq");
  write_file(folder + kWeights, safetensors(header, text.substr(8 + bytes)));
}

// Overwrites the bytes of a tensor from byte `i` on.
void write_bytes(const std::string& path, const std::string& tensor, size_t i,
                 const std::string& bytes) {
  std::string text = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof header);
  const auto places = nlohmann::json::parse(text.substr(8, header))[tensor]["data_offsets"];
  text.replace(8 + header + places[0].get<size_t>() + i, bytes.size(), bytes);
  write_file(path, text);
}

TEST_CASE("eagle: damaged folders of EAGLE-3 heads are refused in one line") {
  const auto target = open_on_cpu(kEagle3Target, Format::f32);
  const DamagedHeads folder{golden("heads/eagle3"), kWeights,
                            [&](const std::string& path) { open_eagle(path, target); }};
  folder.refused("draft_vocab_size is 97, expected up to vocab_size 96", kConfig,
                 R"("draft_vocab_size": 40)", R"("draft_vocab_size": 97)");
  folder.refused("num_hidden_layers is 2, expected 1", kConfig, R"("num_hidden_layers": 1)",
                 R"("num_hidden_layers": 2)");
  folder.refused("eagle_aux_hidden_state_layer_ids has 2 entries, expected 3", kConfig,
                 R"("hidden_act")",
                 R"("eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1]}, "hidden_act")");
  folder.refused("eagle_aux_hidden_state_layer_ids[2] is 7, expected 0 to 6", kConfig,
                 R"("hidden_act")",
                 R"("eagle_aux_hidden_state_layer_ids": [2, 3, 7], "hidden_act")");
  folder.refused("norm_before_residual is true, expected false", kConfig, R"("hidden_act")",
                 R"("norm_before_residual": true, "hidden_act")");
  folder.refused("tensor d2t has dtype F64, expected I64", kWeights, R"("d2t":{"dtype":"I64")",
                 R"("d2t":{"dtype":"F64")");
  folder.refused("tensor d3t is unexpected, expected only tensors of an EAGLE-3 head", kWeights,
                 R"("d2t")", R"("d3t")");
  folder.refused("tensor midlayer.hiddxn_norm.weight is unexpected", kWeights,
                 "midlayer.hidden_norm.weight", "midlayer.hiddxn_norm.weight");
  folder.refused("tensor fc.weight has shape (96, 32), expected (32, 96)", kWeights,
                 R"("shape":[32,96])", R"("shape":[96,32])");
  const auto refusal = [&](const auto& damage) {
    const std::string line = folder.refusal(damage);
    CHECK_MESSAGE(contains(line, kWeights + ": "), line);
    return line;
  };
  CHECK(contains(refusal([](auto& path) { lose_tensor(path, "d2t"); }),
                 "tensor d2t is missing, expected it with a draft_vocab_size of 40"));
  CHECK(contains(
      refusal([](auto& path) { lose_tensor(path, "midlayer.hidden_norm.weight"); }),
      "tensor layers.0.hidden_norm.weight is missing, expected all tensors of an EAGLE-3"));
  for (const int64_t further : {int64_t{-3}, int64_t{94}, INT64_MIN, INT64_MAX}) {
    const std::string line = refusal([&](const std::string& path) {
      std::string bytes;
      append(bytes, further);
      write_bytes(path + kWeights, "d2t", 2 * 8, bytes);
    });
    CHECK_MESSAGE(
        contains(line, fmt::format("tensor d2t has {} at 2, expected one of 96 tokens", further)),
        line);
  }
  // If the model has too few layers for the default of the layers that an EAGLE-3 head reads, the
  // head must list them.
  const TempFolder temp;
  const auto other = open_on_cpu(kEagleTarget, Format::f32);
  const auto write_for = [&](const std::string& more) {
    write_head(temp.path, *other, {HeadsKind::eagle3});
    std::string text = read_file(temp.path + kConfig);
    const std::string ids = R"("eagle_aux_hidden_state_layer_ids": [1, 3, 5])";
    write_file(temp.path + kConfig, text.replace(text.find(ids), ids.size(), more));
  };
  write_for(R"("tie_word_embeddings": false)");
  const std::string few = error_of([&] { open_eagle(temp.path, other); }).what();
  CHECK_MESSAGE(contains(few, "eagle_aux_hidden_state_layer_ids is missing, expected it for " +
                                  kEagleTarget + " with 2 layers"),
                few);
  write_for(R"("eagle_aux_hidden_state_layer_ids": [0, 1, 1])");
  CHECK_NOTHROW(open_eagle(temp.path, other));
}

TEST_CASE("eagle: an EAGLE-3 head may name the layers that it reads") {
  const auto told = golden_numbers(golden("heads/eagle3"));
  const auto tokens = told["tokens"].get<std::vector<TokenId>>();
  const auto rows = [&](const std::string& says) {
    const TempFolder temp;
    write_file(temp.path + kWeights, read_file(golden("heads/eagle3") + kWeights));
    std::string text = read_file(golden("heads/eagle3") + kConfig);
    write_file(temp.path + kConfig, text.replace(text.find(R"("hidden_act")"), 0, says));
    const auto target = open_on_cpu(kEagle3Target, Format::f32);
    const auto eagle = open_eagle(temp.path, target);
    return rows_of(target, tokens);
  };
  const auto usual = rows("");
  CHECK(rows(R"("eagle_aux_hidden_state_layer_ids": [2, 3, 4], )") == usual);
  CHECK(rows(R"("eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, )") == usual);
  CHECK(rows(R"("eagle_aux_hidden_state_layer_ids": [1, 2, 5], )") != usual);
}

TEST_CASE("eagle: a layer for one more token in the model's own folder is recognized") {
  const auto no_keys = [] { return Metadata(); };
  CHECK(HeadsFolder(kNextTarget).kind() == HeadsKind::next_layer);
  CHECK(has_next_layer(kNextTarget, no_keys));
  CHECK(!has_next_layer(kEagleTarget, no_keys));
  CHECK(!has_next_layer(golden("heads/eagle"), no_keys));
  const auto target = open_on_cpu(kNextTarget, Format::f32);
  const auto damaged = [&](const std::string& file, const std::string& from, const std::string& to,
                           const std::string& says) {
    const TempFolder temp;
    for (const auto& entry : std::filesystem::directory_iterator(kNextTarget))
      write_file(temp.path + "/" + entry.path().filename().string(), read_file(entry.path()));
    std::string text = read_file(temp.path + file);
    const size_t at = text.find(from);
    REQUIRE(at != text.npos);
    write_file(temp.path + file, text.replace(at, from.size(), to));
    const Error error = error_of([&] { open_eagle(temp.path, target); });
    CHECK(error.code == Exit::bad_file);
    CHECK_MESSAGE(contains(error.what(), says), std::string(error.what()));
  };
  const std::string part = "/model-00002-of-00002.safetensors";
  damaged(kConfig, R"("num_nextn_predict_layers": 1)", R"("num_nextn_predict_layers": 2)",
          "num_nextn_predict_layers is 2, expected 1");
  damaged(kConfig, R"("hidden_size": 32)", R"("hidden_size": 64)",
          "hidden_size is 64, expected 32");
  damaged(part, R"("shape":[32,64])", R"("shape":[64,32])",
          part +
              ": tensor model.mtp_layers.0.input_proj.weight has shape (64, 32), expected "
              "(32, 64), by config.json and ");
  damaged(
      part, "mtp_layers.0.token_layernorm.weight", "mtp_layers.0.tokxn_layernorm.weight",
      "tensor model.mtp_layers.0.tokxn_layernorm.weight is unexpected, expected only tensors of "
      "a layer that predicts one token more");
  damaged(part, "mtp_layers.0.mlp.up_proj.weight", "mtp_layers.1.mlp.up_proj.weight",
          "tensor model.mtp_layers.1.mlp.up_proj.weight is unexpected");
}

TEST_CASE("eagle: numbers that are not finite are found when a head is opened") {
  const std::string nan32("\0\0\xc0\x7f", 4), infinite16("\0\x7c", 2), nan16("\xc1\x7f", 2);
  const DamagedHeads one{golden("heads/eagle"), kWeights,
                         [target = open_on_cpu(kEagleTarget, Format::f32)](
                             const std::string& path) { open_eagle(path, target); }};
  CHECK(contains(one.refusal([&](const std::string& path) {
    write_bytes(path + kWeights, "fc.weight", 2 * 9, infinite16);
  }),
                 kWeights + ": number 9 of tensor fc.weight is not finite: the file is damaged"));
  const DamagedHeads bf16{golden("heads/eagle_bf16"), kWeights, one.open};
  CHECK(contains(bf16.refusal([&](const std::string& path) {
    write_bytes(path + kWeights, "layers.0.mlp.up_proj.weight", 0, nan16);
  }),
                 "number 0 of tensor layers.0.mlp.up_proj.weight is not finite"));
  const auto target = Engine::open({});
  for (const HeadsKind kind : kEveryKind) {
    const TempFolder temp;
    write_head(temp.path, *target, {kind});
    const std::string tensor = kind == HeadsKind::eagle3 ? "norm.weight"
                               : kind == HeadsKind::next_layer
                                   ? "model.mtp_layers.0.input_proj.weight"
                                   : "layers.0.self_attn.v_proj.weight";
    write_bytes(temp.path + kWeights, tensor, 4 * 7, nan32);
    const Error error = error_of([&] { open_eagle(temp.path, target); });
    CHECK(error.code == Exit::bad_file);
    CHECK_MESSAGE(contains(error.what(), "number 7 of tensor " + tensor),
                  std::string(error.what()));
  }
}

TEST_CASE("eagle: a text continues without a head whose numbers become infinite") {
  const auto target = Engine::open({});
  const TempFolder temp;
  write_head(temp.path, *target,
             {HeadsKind::eagle1, 1, std::vector<float>(size_t(target->hidden_size()), 3e38f)});
  const auto prompt = target->tokenizer().encode_prompt("Once upon a time");
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions with = drawn(temperature, 1, 100);
    const auto plain = generate(*target->session(), prompt, with, kUnheard);
    const auto drafter = eagle_drafter(open_eagle(temp.path, target), with.sampling);
    std::vector<std::string> lost;
    with.on_drafter_lost = [&](const std::string& why) { lost.push_back(why); };
    with.drafter = drafter.get(), with.draft_length = 2;
    const auto got = generate(*target->session(), prompt, with, kUnheard);
    CHECK(got.tokens == plain.tokens);
    CHECK(got.finish == plain.finish);
    CHECK(got.drafted == 0);
    REQUIRE(lost.size() == 1);
    CHECK(contains(lost[0], temp.path + ": the logits after token "));
  }
}

TEST_CASE("cli/a model's own folder has the layer that drafts for it") {
  const TempFolder temp;
  const std::string folder = temp / "model", whole = temp / "model.quipu";
  REQUIRE(
      chaski_run({"convert", "models/bundled/story.quipu", folder, "--layout", "gptq"}).status ==
      0);
  auto config = nlohmann::json::parse(read_file(folder + kConfig));
  WrittenHead layer{HeadsKind::next_layer};
  layer.heads = config["num_attention_heads"], layer.kv_heads = config["num_key_value_heads"];
  layer.ffn = config["intermediate_size"];
  const TempFolder own;
  write_head(own.path, *Engine::open({}), layer);
  config["num_nextn_predict_layers"] = 1;
  write_file(folder + kConfig, config.dump());
  nlohmann::json index;
  for (const std::string& from : {folder, own.path}) {
    const std::string text = read_file(from + kWeights),
                      name = from == folder ? "model-1.safetensors" : "model-2.safetensors";
    uint64_t header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    const auto places = nlohmann::json::parse(text.substr(8, header));
    for (const auto& [tensor, place] : places.items())
      if (tensor != "__metadata__") index["weight_map"][tensor] = name;
    write_file(folder + "/" + name, text);
  }
  std::filesystem::remove(folder + kWeights);
  write_file(folder + kWeights + ".index.json", index.dump());
  CHECK(has_next_layer(folder, [] { return Metadata(); }));
  REQUIRE(chaski_run({"convert", folder, whole}).status == 0);
  const auto run = [&](const std::string& model, std::vector<std::string> more) {
    std::vector<std::string> words{"run", "--device", "cpu",    "-p", "Once upon a time",
                                   "-n",  "200",      "--temp", "0",  "--ignore-end",
                                   "-m",  model};
    words.insert(words.end(), more.begin(), more.end());
    return chaski_run(words);
  };
  const Outcome plain = run(folder, {"--draft", "none"});
  CHECK_MESSAGE(plain.status == 0, plain.err);
  for (const std::string& model : {folder, whole}) {
    const Outcome with = run(model, {"--draft", folder});
    CHECK_MESSAGE(with.status == 0, with.err);
    CHECK(with.out == plain.out);
  }
  const std::string hint = folder + " has a layer that predicts draft tokens: --draft " + folder;
  CHECK(contains(run(folder, {"-v"}).err, hint));
  CHECK(!contains(run(folder, {}).err, hint));
}

TEST_CASE("cli/run drafts with an EAGLE head, and refuses a head of another model") {
  const TempFolder temp;
  write_head(temp.path, *Engine::open({}));
  const auto run = [&](const std::string& drafter) {
    return chaski_run({"run", "--device", "cpu", "-p", "Once upon a time", "-n", "200", "--temp",
                       "0", "--ignore-end", "--answers", "2", "--seed", "3", "--draft", drafter});
  };
  const Outcome plain = run("none"), with = run(temp.path);
  CHECK_MESSAGE(with.status == 0, with.err);
  CHECK(with.out == plain.out);
  for (const HeadsKind kind : {HeadsKind::eagle3, HeadsKind::next_layer}) {
    const TempFolder of_kind;
    write_head(of_kind.path, *Engine::open({}), {kind});
    const Outcome guessed = run(of_kind.path);
    CHECK_MESSAGE(guessed.status == 0, guessed.err);
    CHECK(guessed.out == plain.out);
  }
  // If the head must be left out, a note says so once.
  const auto target = Engine::open({});
  const TempFolder large;
  write_head(large.path, *target,
             {HeadsKind::eagle1, 1, std::vector<float>(size_t(target->hidden_size()), 3e38f)});
  const Outcome lost = run(large.path);
  CHECK(lost.status == 0);
  CHECK(lost.out == plain.out);
  const size_t said = lost.err.find(": the text continues without a drafter");
  CHECK_MESSAGE(said != lost.err.npos, lost.err);
  CHECK(lost.err.find("the text continues", said + 9) == lost.err.npos);
  const Outcome other = run(golden("heads/eagle"));
  CHECK(other.status == 3);
  CHECK_MESSAGE(other.error_says("config.json: hidden_size is 64, expected 192, as in (bundled)"),
                other.err);
  CHECK(chaski_run({"run", "--help"}).out.find("EAGLE head") != std::string::npos);
}

}  // namespace
}  // namespace chaski::test
