// Importing Hugging Face folders written by other programs (names, layouts, tokenizers) and
// exporting them as GGUF. bad_folder_test.cpp has the folders that must be refused.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "models/import/gguf/gguf.h"
#include "models/import/hf/hf_tokenizer.h"
#include "models/import/tokenizer/pre_patterns.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"

namespace chaski::test {
namespace {

using Numbers = std::vector<int64_t>;
using Floats = std::vector<float>;

std::string folder_with(const TempFolder& temp, const std::string& config,
                        const std::string& header, const std::string& buffer) {
  write_file(temp / "config.json", config);
  write_file(temp / "model.safetensors", safetensors(header, buffer));
  return temp.path;
}

const std::string kLlamaConfig =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 4,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 3, "max_position_embeddings": 32,
  "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": [2, 0] TAIL})";

std::string llama_config(const std::string& tail = "") {
  std::string config = kLlamaConfig;
  return config.replace(config.find(" TAIL"), 5, tail);
}

TEST_CASE("import/golden folders to gguf and back") {
  for (auto name : {"gpt2", "llama_f16", "llama_gqa_untied", "llama_mha_bf16", "llama_mqa_tied",
                    "llama_rope_linear", "llama_rope_yarn", "llama_sharded", "mistral_window"}) {
    const std::string path = golden("models/" + std::string(name));
    if (!have(path)) continue;
    CAPTURE(path);
    TempFolder temp;
    const ModelSource source = import_model(path);
    CHECK(source.kind == "Hugging Face folder");
    CHECK_FALSE(source.meta.has("tokenizer.kind"));
    export_gguf(temp / "out.gguf", source);
    check_same_model(source, import_model(temp / "out.gguf"));
  }
}

TEST_CASE("import/golden mistral and newer rope parameters") {
  if (have(golden("models/mistral_window")))
    CHECK(import_model(golden("models/mistral_window")).meta.integer("model.sliding_window") == 8);
  if (!have(golden("models/llama_sharded"))) return;
  const ModelSource source = import_model(golden("models/llama_sharded"));
  CHECK(source.meta.number("model.rope_theta") == 5000);
  CHECK(source.meta.integer("model.head_dim") == 16);
  CHECK(source.tensors.size() == 21);
}

TEST_CASE("import/config.json: null where it means none, and -0") {
  const TempFolder temp;
  std::filesystem::copy(golden("models/gemma2"), temp.path,
                        std::filesystem::copy_options::recursive);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string config = read_file(golden("models/gemma2/config.json"));
    REQUIRE(config.find(from) != std::string::npos);
    write_file(temp / "config.json", config.replace(config.find(from), from.size(), to));
    return import_model(temp.path).meta;
  };
  CHECK(with("\"sliding_window\": 8", "\"sliding_window\": null").integer("model.sliding_window") ==
        0);
  CHECK(with("\"sliding_window\": 8", "\"sliding_window\": -0").integer("model.sliding_window") ==
        0);
  CHECK(with("\"attn_logit_softcapping\": 5.0", "\"attn_logit_softcapping\": null")
            .number("model.attention_soft_cap") == 0);
  CHECK(with("\"final_logit_softcapping\": 10.0", "\"final_logit_softcapping\": -0.0")
            .number("model.logit_soft_cap") == 0);
  // an absent key differs from null
  CHECK(with("\"attn_logit_softcapping\": 5.0,", "").number("model.attention_soft_cap") == 50);
}

// What it does to the frequencies is tested by gpt_oss, whose logits are transformers'.
TEST_CASE("import/config.json: truncate of yarn is read for every architecture") {
  for (const char* name : {"qwen3", "gemma", "gemma2", "seed_oss", "llama_gqa_untied"}) {
    CAPTURE(name);
    const TempFolder temp;
    std::filesystem::copy(golden("models/") + name, temp.path,
                          std::filesystem::copy_options::recursive);
    nlohmann::json config = nlohmann::json::parse(read_file(temp / "config.json"));
    for (const bool truncate : {false, true}) {
      config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"truncate", truncate}};
      write_file(temp / "config.json", config.dump());
      CHECK(import_model(temp.path).meta.boolean("model.rope_truncate", true) == truncate);
    }
  }
}

// gemma3 as the language model of a model that also reads images, under both names that occur.
TEST_CASE("import/config.json: kinds of layers under either key, and keys that are not read") {
  const auto imported = [](const std::string& model, const std::string& from,
                           const std::string& to) {
    const TempFolder temp;
    std::string config = read_file(golden("models/" + model + "/config.json"));
    REQUIRE(config.find(from) != config.npos);
    write_file(temp / "config.json", config.replace(config.find(from), from.size(), to));
    write_file(temp / "model.safetensors",
               read_file(golden("models/" + model + "/model.safetensors")));
    return import_model(temp.path).meta;
  };
  const Metadata kimi =
      imported("kimi_linear", R"({"full_attn_layers": [2, 4], "kda_layers": [1, 3], )",
               R"({"head_dim": 24, "num_heads": 2}, "layer_types": ["linear_attention",
                  "full_attention", "linear_attention", "full_attention"], "unread": {)");
  CHECK(kimi.ints("model.head_count_kv") == Numbers{0, 1, 0, 1});
  const Metadata minimax = imported("minimax_01",
                                    R"("layer_types": ["linear_attention", "full_attention", )"
                                    R"("linear_attention"])",
                                    R"("attn_type_list": [0, 1, 0])");
  CHECK(minimax.ints("model.recurrent_layers") == Numbers{1, 0, 1});
  // Without architectures, the authors' name of the config says which model it is.
  CHECK(
      imported("based", R"("architectures": ["GPTLMHeadModel"],)", "").ints("model.mixer_kinds") ==
      Numbers{0, 1, 2, 0});
  CHECK(
      imported("based", R"("vocab_size": 96)", R"("vocab_size": 94)").integer("model.vocab_size") ==
      96);  // rows are a multiple of 8
  // The number of positions that a trainer chose is no limit.
  CHECK(imported("rwkv7", "{", R"({"max_position_embeddings": 2048,)")
            .integer("model.context_length") == 1 << 20);
  // Layers with attention by their numbers, as older files of LFM2 have them.
  const std::string kinds = R"("layer_types": ["conv", "full_attention", "conv", "conv"])";
  for (const auto& [list, expected] :
       {std::pair(R"("full_attn_idxs": [1])", Numbers{0, 2, 0, 0}),
        {R"("full_attn_idxs": [3], "layer_types": ["conv", "full_attention", "conv", "conv"])",
         Numbers{0, 2, 0, 0}}})
    CHECK(imported("lfm2", kinds, list).ints("model.head_count_kv") == expected);
  // "auto" is the number that follows from other keys.
  for (const auto& [model, channels] : {std::pair("falcon_h1", 48), {"granite_hybrid", 64}})
    CHECK(imported(model, R"("mamba_d_head": )", R"("mamba_d_head": "auto", "unread": )")
              .integer("model.ssm.inner_size") == channels);
  // Only the norm of Mamba's result asks whether it is before the gate.
  const std::string gate = R"("mamba_norm_before_gate": false)";
  CHECK(imported("falcon_h1_plain", gate, R"("unread": 0)").integer("model.ssm.inner_size") == 48);
  const Error missing = error_of([&] { imported("falcon_h1", gate, R"("unread": 0)"); });
  CHECK(contains(missing.what(), "mamba_norm_before_gate is missing, expected "));
  // Infinity as Python writes it, and as transformers 5 does.
  for (const char* infinity : {"Infinity", R"({"__float__": "Infinity"})"})
    CHECK(imported("mamba2", "{", fmt::format(R"({{"time_step_limit": [0.0, {}],)", infinity))
              .integer("model.ssm.conv_kernel") == 4);
}

TEST_CASE("import/the text's part of a larger model") {
  const ModelSource alone = import_model(golden("models/gemma3"));
  const std::string config = read_file(golden("models/gemma3/config.json"));
  const std::string file = read_file(golden("models/gemma3/model.safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const std::string data = file.substr(8 + length);
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    CAPTURE(prefix);
    std::string header = file.substr(8, length);
    for (size_t at = 0; (at = header.find("\"model.", at)) != header.npos; at += prefix.size())
      header.replace(at + 1, 6, prefix);
    header.insert(
        header.find("}}") + 1,
        fmt::format(R"(,"vision_tower.x":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})",
                    data.size(), data.size() + 4));
    const TempFolder temp;
    write_file(
        temp / "config.json",
        R"({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": )" + config + "}");
    write_file(temp / "model.safetensors", safetensors(header, data + std::string(4, '\0')));
    const ModelSource source = import_model(temp.path);
    CHECK(source.tensors.size() == alone.tensors.size());
    CHECK(source.meta.integer("model.head_dim") == 16);
    for (const char* name : {"token_embd", "layer.1.attn_k_norm", "layer.3.ffn_down"})
      CHECK(values_of(tensor(source, name)) == values_of(tensor(alone, name)));
  }
  const TempFolder temp;
  write_file(temp / "config.json", R"({"text_config": {"model_type": "other"}})");
  const std::string line = error_of([&] { import_model(temp.path); }).what();
  CHECK_MESSAGE(
      line.find("text_config.model_type is \"other\", expected one of ") != std::string::npos,
      line);
}

// A GGUF file has q, k and v of a phi3 model in one tensor.
TEST_CASE("import/parts of one tensor leave together, or not at all") {
  TempFolder temp;
  ModelSource source = import_model(golden("models/phi3"));
  check_shape(source, "layer.0.attn_q", Format::f32, 64, 64);
  check_shape(source, "layer.0.attn_k", Format::f32, 32, 64);
  check_shape(source, "layer.0.ffn_up", Format::f32, 64, 64);
  export_gguf(temp / "out.gguf", source);
  check_same_model(source, import_model(temp / "out.gguf"));
  const auto says = [&] {
    return std::string(error_of([&] { export_gguf(temp / "bad.gguf", source); }).what());
  };
  const auto k = std::find_if(source.tensors.begin(), source.tensors.end(),
                              [](auto& t) { return t.info.name == "layer.0.attn_k"; });
  k->info.format = Format::f16;
  CHECK_MESSAGE(says().find("is f32 and layer.0.attn_k is f16, expected the same format") !=
                    std::string::npos,
                says());
  source.tensors.erase(k);
  CHECK_MESSAGE(
      says().find("tensors for layer.0.attn_qkv have 96 rows, expected 128") != std::string::npos,
      says());
}

// Long wavelengths are divided by the whole factor, short ones are unchanged.
TEST_CASE("import/llama3 scaling leaves as the divisors GGUF knows") {
  const std::string path = golden("models/llama_rope_llama3");
  if (!have(path)) return;
  TempFolder temp;
  const ModelSource source = import_model(path);
  CHECK(source.meta.str("model.rope_scaling") == "llama3");
  export_gguf(temp / "out.gguf", source);
  const ModelSource back = import_model(temp / "out.gguf");
  CHECK(back.meta.str("model.rope_scaling") == "none");
  const Floats divisors = values_of(tensor(back, "rope_freqs"));
  CHECK(divisors.size() == 8);  // head_dim 16
  CHECK(divisors.front() == 1);
  CHECK(divisors.back() == 8);
  // i = 1: wave 2 pi 10000^(1/8) = 19.9, context / wave = 1.61, between 1 and 4: smooth = 0.204.
  const double wave = 2 * M_PI * std::pow(10000, 1.0 / 8), smooth = (32 / wave - 1) / 3;
  CHECK(divisors[1] == doctest::Approx(1 / ((1 - smooth) / 8 + smooth)));
}

TEST_CASE("import/llama3 scaling leaves other architectures as divisors too") {
  for (const char* name : {"olmo2", "glm4", "phi2", "baichuan"}) {
    CAPTURE(name);
    const std::string path = golden(std::string("models/") + name);
    if (!have(path)) continue;
    const TempFolder temp;
    std::string config = read_file(path + "/config.json");
    config.insert(config.find('{') + 1,
                  R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                     "high_freq_factor": 4, "original_max_position_embeddings": 32},)");
    write_file(temp / "config.json", config);
    std::filesystem::copy_file(path + "/model.safetensors", temp / "model.safetensors");
    export_gguf(temp / "out.gguf", import_model(temp.path));
    CHECK(values_of(tensor(import_model(temp / "out.gguf"), "rope_freqs")).back() == 8);
  }
}

TEST_CASE("import/hf TinyStories-656K in full") {
  const std::string path = data("models/TinyStories-656K");
  if (!have(path)) return;
  const ModelSource source = import_model(path);
  const Metadata& meta = source.meta;
  CHECK(source.tensors.size() == 20);
  check_shape(source, "token_embd", Format::f32, 2048, 128);
  check_shape(source, "layer.1.attn_k", Format::f32, 64, 128);
  CHECK_FALSE(source.find("output"));
  CHECK(meta.integer("model.head_count_kv") == 4);
  CHECK(meta.number("model.norm_epsilon") == 1e-6);

  const std::string file = read_file(path + "/model.safetensors");
  auto stored = [&](size_t offset, size_t n) {
    Floats values(n);
    const uint64_t header = *reinterpret_cast<const uint64_t*>(file.data());
    std::memcpy(values.data(), file.data() + 8 + header + offset, n * sizeof(float));
    return values;
  };
  CHECK(values_of(tensor(source, "token_embd")) == stored(0, 2048 * 128));
  CHECK(values_of(tensor(source, "output_norm")) == stored(2623488, 128));
  const Floats q = values_of(tensor(source, "layer.0.attn_q")), theirs = stored(1737728, 128 * 128);
  auto row = [](const Floats& m, size_t r) {
    return Floats(m.begin() + r * 128, m.begin() + (r + 1) * 128);
  };
  CHECK(row(q, 0) == row(theirs, 0));
  CHECK(row(q, 1) == row(theirs, 8));  // head_dim 16: row 2i + 1 is the file's row i + 8
  CHECK(row(q, 16 + 6) == row(theirs, 16 + 3));
  CHECK(row(q, 127) == row(theirs, 127));

  CHECK(meta.str("tokenizer.kind") == "spm");
  const auto& tokens = meta.strs("tokenizer.tokens");
  REQUIRE(tokens.size() == 2048);
  CHECK(tokens[2] == "<|end_story|>");
  CHECK(tokens[81] == "e▁");
  CHECK(meta.floats("tokenizer.scores")[81] == 0);
  CHECK(meta.floats("tokenizer.scores")[82] == -1);
  CHECK(meta.floats("tokenizer.scores")[60] < -1e8);
  const auto& types = meta.ints("tokenizer.types");
  CHECK(Numbers{types[0], types[1], types[2], types[3]} == Numbers{2, 3, 3, 1});
  CHECK(meta.integer("tokenizer.bos_id") == 1);
  CHECK(meta.integer("tokenizer.eos_id") == 2);
  CHECK(meta.ints("tokenizer.eos_ids") == Numbers{2});
  CHECK(meta.boolean("tokenizer.add_bos", false));
  CHECK_FALSE(meta.boolean("tokenizer.add_eos", true));
  CHECK(meta.boolean("tokenizer.add_space_prefix", false));

  TempFolder temp;
  export_gguf(temp / "out.gguf", source);
  check_same_model(source, import_model(temp / "out.gguf"));
}

TEST_CASE("import/hf heads: tied, untied, stored once under the other name") {
  const std::string embed =
      R"("model.embed_tokens.weight":{"dtype":"F32","shape":[3,8],"data_offsets":[0,96]})";
  const std::string head =
      R"("lm_head.weight":{"dtype":"F32","shape":[3,8],"data_offsets":[96,192]})";
  const std::string only_head =
      R"({"lm_head.weight":{"dtype":"F32","shape":[3,8],"data_offsets":[0,96]}})";
  const std::string both = "{" + embed + "," + head + "}",
                    tied = R"(, "tie_word_embeddings": true)";
  struct Case {
    std::string tail, header, floats;
    bool output;
  };
  // A stored head that differs from the table is used, whatever config.json says.
  for (auto& c :
       {Case{"", both, floats(48), true}, Case{tied, both, floats(48), true},
        Case{tied, both, floats(24) + floats(24), false},
        Case{"", "{" + embed + "}", floats(24), false}, Case{"", only_head, floats(24), false}}) {
    TempFolder temp;
    const ModelSource source =
        import_model(folder_with(temp, llama_config(c.tail), c.header, c.floats));
    CAPTURE(c.header);
    CHECK(values_of(tensor(source, "token_embd"))[23] == 23);
    CHECK((source.find("output") != nullptr) == c.output);
    if (c.output) CHECK(values_of(tensor(source, "output"))[0] == 24);
  }
  TempFolder temp;
  const std::string folder = folder_with(temp, llama_config(R"(, "tie_word_embeddings": false)"),
                                         "{" + embed + "}", floats(24));
  CHECK(std::string(error_of([&] { import_model(folder); }).what()) ==
        folder +
            "/config.json: tie_word_embeddings is false, expected true or a tensor lm_head.weight");
}

TEST_CASE("import/hf: Llama's first name, and Gemma 4 as transformers 5.23 saves it") {
  TempFolder temp;
  std::string first = llama_config();
  first.replace(first.find("LlamaFor"), 5, "LLaMA");
  CHECK(import_model(folder_with(temp, first, "{}", "")).meta.str("general.architecture") ==
        "llama");

  const std::string folder = golden("models/gemma4_per_layer");
  const ModelSource source = import_model(folder);
  CHECK(source.meta.integer("model.head_dim") == 16);
  CHECK(source.meta.ints("model.head_count_kv") == Ints{2, 2, 1});
  const std::string config = read_file(folder + "/config.json"),
                    own =
                        R"("per_layer_config": {"2": {"head_dim": 16, "num_key_value_heads": 1}})";
  REQUIRE(config.find(own) != config.npos);
  for (const auto& [layers, line] :
       {std::pair{R"({"1": {"head_dim": 16}, "2": {"head_dim": 16}})",
                  "per_layer_config.1 is an object, expected nothing there"},
        {"{}", "per_layer_config.2 is missing, expected an object"},
        {R"({"2": {"num_key_value_heads": 1}})",
         "per_layer_config.2.head_dim is missing, expected it in every layer"},
        {R"({"2": {"head_dim": 16}, "7": {"head_dim": 16}})",
         "per_layer_config.7 is an object, expected layers 0 to 2"},
        {R"({"2": {"head_dim": 16, "sliding_window": 4}})",
         "per_layer_config.2.sliding_window is 4, expected no other keys than head_dim, "
         "num_key_value_heads"}}) {
    std::string changed = config;
    changed.replace(config.find(own), own.size(), std::string("\"per_layer_config\": ") + layers);
    write_file(temp / "config.json", changed);
    const std::string found = error_of([&] { import_model(temp.path); }).what();
    CHECK_MESSAGE(contains(found, line), found);
  }
}

TEST_CASE("import/hf bias of a query is permuted like its rows, f16 vectors become f32") {
  TempFolder temp;
  const std::string header =
      R"({"model.layers.0.self_attn.q_proj.bias":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},
    "model.layers.0.self_attn.v_proj.bias":{"dtype":"BF16","shape":[2],"data_offsets":[32,36]},
    "model.layers.0.self_attn.rotary_emb.inv_freq":{"dtype":"F32","shape":[1],"data_offsets":[36,40]}})";
  const std::string buffer = floats(8) + std::string("\x80\x3f\x00\xc0\0\0\0\0", 8);
  const auto with = [&](const char* flag, const std::string& numbers) {
    return import_model(folder_with(temp, llama_config(flag), header, numbers));
  };
  const char* const none = R"(, "attention_bias": false)";
  const std::string line = error_of([&] { with(none, buffer); }).what();
  CHECK_MESSAGE(contains(line, "attention_bias is false, expected true: the file has the tensor "),
                line);
  // AutoGPTQ stores biases of zeros.
  CHECK(with(none, std::string(buffer.size(), '\0')).tensors.empty());
  CHECK(with("", std::string(buffer.size(), '\0')).tensors.empty());
  const ModelSource source = with(R"(, "attention_bias": true)", buffer);
  CHECK(source.tensors.size() == 2);
  CHECK(values_of(tensor(source, "layer.0.attn_q.bias")) == Floats{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(values_of(tensor(source, "layer.0.attn_v.bias")) == Floats{1, -2});
}

TEST_CASE("import/hf gpt2 turns Conv1D weights and skips masks") {
  TempFolder temp;
  const std::string config =
      R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 2, "n_head": 1, "n_layer": 1, "n_positions": 8,
    "n_inner": null, "vocab_size": 3, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"})";
  const std::string header =
      R"({"h.0.attn.c_attn.weight":{"dtype":"F32","shape":[2,6],"data_offsets":[0,48]},
    "transformer.wte.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[48,72]},
    "h.0.ln_1.bias":{"dtype":"F32","shape":[2],"data_offsets":[72,80]},
    "h.0.attn.bias":{"dtype":"BOOL","shape":[1,1,2,2],"data_offsets":[80,84]}})";
  const ModelSource source = import_model(folder_with(temp, config, header, floats(21)));
  CHECK(source.tensors.size() == 3);
  check_shape(source, "layer.0.attn_qkv", Format::f32, 6, 2);
  CHECK(values_of(tensor(source, "layer.0.attn_qkv")) ==
        Floats{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11});
  CHECK(values_of(tensor(source, "token_embd")) == Floats{12, 13, 14, 15, 16, 17});
  CHECK(values_of(tensor(source, "layer.0.attn_norm.bias")) == Floats{18, 19});
  CHECK(source.meta.integer("model.feed_forward_length") == 8);
  CHECK_FALSE(source.meta.has("model.rope_theta"));
}

// Imports only the tokenizer, from a folder without a model.
Metadata tokenizer_of(const std::string& folder, int64_t vocab_size) {
  Metadata meta;
  meta.origin = folder;
  HfConfig config{};
  config.vocab_size = vocab_size;
  read_hf_tokenizer(folder, config, meta);
  return meta;
}

std::string byte_level_json(const std::string& pre_tokenizer) {
  return R"({"model": {"type": "BPE", "ignore_merges": true, "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 4},
    "merges": [["a", "b"], ["ab", "b"]]}, "pre_tokenizer": )" +
         pre_tokenizer + R"(,
    "added_tokens": [{"id": 5, "content": "<|end|>", "special": true}, {"id": 6, "content": "<tool>", "special": false}],
    "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}]}})";
}

TEST_CASE("import/hf byte-level tokenizer.json: patterns, merges, holes, added pieces, templates") {
  TempFolder temp;
  const std::string pre = R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\d+"}, "behavior": "Isolated", "invert": false},
    {"type": "Split", "pattern": {"String": "a.b"}, "behavior": "Isolated"},
    {"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "use_regex": false, "add_prefix_space": true}]})";
  write_file(temp / "tokenizer.json", byte_level_json(pre));
  write_file(temp / "tokenizer_config.json",
             R"({"eos_token": {"content": "<|end|>"}, "add_bos_token": false, "chat_template":
    [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]})");
  const Metadata meta = tokenizer_of(temp.path, 9);
  CHECK(meta.str("tokenizer.kind") == "bpe");
  CHECK(meta.strs("tokenizer.tokens") == std::vector<std::string>{"a", "b", "ab", "[UNUSED3]",
                                                                  "abb", "<|end|>", "<tool>",
                                                                  "[UNUSED7]", "[UNUSED8]"});
  CHECK(meta.ints("tokenizer.types") == Numbers{1, 1, 1, 5, 1, 3, 4, 5, 5});
  CHECK(meta.strs("tokenizer.merges") == std::vector<std::string>{"a b", "ab b"});
  CHECK(meta.strs("tokenizer.pre_patterns") == std::vector<std::string>{"\\d+", "a\\.b", "\\p{N}"});
  CHECK(meta.boolean("tokenizer.add_space_prefix", false));
  CHECK(meta.boolean("tokenizer.ignore_merges", false));
  CHECK_FALSE(meta.boolean("tokenizer.add_bos", true));  // tokenizer_config.json has priority
  CHECK(meta.integer("tokenizer.bos_id") == 5);
  CHECK(meta.ints("tokenizer.eos_ids") == Numbers{5});
  CHECK(meta.str("tokenizer.chat_template") == "yes");
  CHECK(tokenizer_of(temp.path, 6).strs("tokenizer.tokens").size() == 6);  // <tool> has no row
  write_file(temp / "chat_template.jinja", "file");
  CHECK(tokenizer_of(temp.path, 9).str("tokenizer.chat_template") == "file");
}

// A folder of two kilobytes that asks for 700 MB of unused pieces.
TEST_CASE("import/hf a vocabulary of holes is refused") {
  TempFolder temp;
  const std::string pre = R"({"type": "ByteLevel"})";
  write_file(temp / "tokenizer.json", byte_level_json(pre));
  const auto says = [&](int64_t vocab_size) {
    return std::string(error_of([&] { tokenizer_of(temp.path, vocab_size); }).what());
  };
  CHECK(tokenizer_of(temp.path, 1 << 16).strs("tokenizer.tokens").size() == 1 << 16);
  CHECK(says(4194304).find("6 pieces, expected more for a vocab_size of 4194304") !=
        std::string::npos);
  for (const auto& [from, to] :
       {std::pair("\"abb\": 4", "\"abb\": 4194303"), {"\"id\": 6", "\"id\": 4194303"}}) {
    std::string json = byte_level_json(pre);
    write_file(temp / "tokenizer.json", json.replace(json.find(from), std::strlen(from), to));
    CHECK_MESSAGE(says(400).find("4194303, expected") != std::string::npos, says(400));
  }
}

TEST_CASE("import/hf patterns and ends survive a GGUF that has no word for them") {
  TempFolder temp;
  folder_with(
      temp,
      R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 4, "num_hidden_layers": 1,
    "num_attention_heads": 2, "vocab_size": 7, "max_position_embeddings": 32, "eos_token_id": [2, 1]})",
      R"({"norm.weight":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}})", floats(8));
  write_file(temp / "tokenizer.json", byte_level_json(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated"}, {"type": "ByteLevel"}]})"));
  const ModelSource source = import_model(temp.path);
  CHECK(source.meta.ints("tokenizer.eos_ids") == Numbers{1, 2, 5});
  CHECK_THROWS_AS(export_gguf(temp / "config.json", source),
                  Error);  // config.json is part of the model
  TempFolder other;
  export_gguf(other / "out.gguf", source);
  check_same_model(source, import_model(other / "out.gguf"));
  CHECK(std::get<std::string>(read_gguf(other / "out.gguf").values.at("tokenizer.ggml.pre").data) ==
        "default");
}

TEST_CASE("import/hf Metaspace and byte pieces") {
  TempFolder temp;
  write_file(temp / "tokenizer.json",
             R"({"model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
    "vocab": {"<unk>": 0, "<0x0A>": 1, "▁": 2, "a": 3, "▁a": 4, "▁▁a": 5}, "merges": ["▁ a", "▁ ▁a"]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": false}})");
  const Metadata meta = tokenizer_of(temp.path, 6);
  CHECK(meta.str("tokenizer.kind") == "spm");
  CHECK(meta.ints("tokenizer.types") == Numbers{2, 6, 1, 1, 1, 1});
  CHECK(meta.floats("tokenizer.scores") == std::vector<double>{-1e9, -1e9, -1e9, -1e9, 0, -1});
  CHECK_FALSE(meta.boolean("tokenizer.add_space_prefix", true));
}

TEST_CASE("import/hf SentencePiece model equals the same vocabulary in GGUF") {
  const std::string model = data("tokenizers/llama2/tokenizer.model"),
                    gguf = data("vocab/ggml-vocab-llama-spm.gguf");
  if (!have(model) || !have(gguf)) return;
  TempFolder temp;
  std::filesystem::copy_file(model, temp / "tokenizer.model");
  const Metadata meta = tokenizer_of(temp.path, 32000), other = import_gguf(gguf).meta;
  for (auto key : {"tokenizer.tokens", "tokenizer.scores", "tokenizer.types", "tokenizer.add_bos",
                   "tokenizer.add_space_prefix", "tokenizer.eos_ids"}) {
    CAPTURE(key);
    CHECK(*meta.find(key) == *other.find(key));
  }
  CHECK(meta.integer("tokenizer.bos_id") == 1);
  for (auto version : {"v1", "v3"}) {
    std::filesystem::remove(temp / "tokenizer.model");
    std::filesystem::copy_file(data(std::string("tokenizers/mistral/tokenizer.model.") + version),
                               temp / "tokenizer.model");
    CHECK(tokenizer_of(temp.path, 32768).strs("tokenizer.tokens")[2] == "</s>");
  }
}

TEST_CASE("import/hf GPT-2's vocabulary in three kinds of file") {
  const std::string json = data("tokenizers/gpt_neo/tokenizer.json"),
                    pair = data("tokenizers/gpt2");
  const std::string gguf = data("vocab/ggml-vocab-gpt-2.gguf");
  if (!have(json) || !have(pair) || !have(gguf)) return;
  TempFolder temp;
  std::filesystem::copy_file(json, temp / "tokenizer.json");
  const Metadata a = tokenizer_of(temp.path, 50257), b = tokenizer_of(pair, 50257),
                 c = import_gguf(gguf).meta;
  CHECK(a.strs("tokenizer.tokens") == c.strs("tokenizer.tokens"));
  CHECK(a.strs("tokenizer.merges") == c.strs("tokenizer.merges"));
  CHECK(b.strs("tokenizer.tokens") == c.strs("tokenizer.tokens"));
  CHECK(b.strs("tokenizer.merges") == c.strs("tokenizer.merges"));
  CHECK(a.strs("tokenizer.pre_patterns") == std::vector<std::string>{std::string(kGpt2Pattern)});
  CHECK(gguf_name_of(b.strs("tokenizer.pre_patterns")) == "gpt-2");
  CHECK(a.ints("tokenizer.eos_ids") == Numbers{50256});
}

}  // namespace
}  // namespace chaski::test
