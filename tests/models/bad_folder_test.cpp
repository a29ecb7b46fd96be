// Malformed Hugging Face folders: safetensors, shards, config.json and tokenizer files, each with
// one defect. Each must be refused with one Error that names the file.
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/architecture.h"
#include "tests/kit/import_support.h"

namespace chaski::test {
namespace {

const std::string kConfig =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 4,
  "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 3, "max_position_embeddings": 32})";
const std::string kNorm =
    R"("model.norm.weight":{"dtype":"F32","shape":[8],"data_offsets":[0,32]})";

void check_folder(const std::string& named, const std::string& part, const std::string& config,
                  const std::string& weights, Exit code = Exit::bad_file) {
  TempFolder temp;
  write_file(temp / "config.json", config);
  if (!weights.empty()) write_file(temp / "model.safetensors", weights);
  check_refused(temp.path, named, part, code);
}

void check_header(const std::string& part, const std::string& header, size_t buffer = 32) {
  check_folder("model.safetensors", part, kConfig, safetensors(header, std::string(buffer, '\0')));
}

// Replaces `from` in the header entry of the only tensor.
void check_entry(const std::string& part, const std::string& from, const std::string& to) {
  std::string header = "{" + kNorm + "}";
  check_header(part, header.replace(header.find(from), from.size(), to));
}

TEST_CASE("bad/safetensors container") {
  std::string long_header, short_file;
  append<uint64_t>(long_header, 200'000'000), append<uint64_t>(short_file, 5000);
  check_folder("model.safetensors", "header length is 200000000", kConfig, long_header);
  check_folder("model.safetensors", "5000 bytes wanted", kConfig, short_file + "{}");
  check_folder("model.safetensors", "header length", kConfig, "abc");
  check_folder("model.safetensors", "", kConfig, "", Exit::io);
  check_header("not valid JSON", "{" + kNorm);
  check_header("not valid JSON", "{\"a\x1b\": \xff}");
  check_header("nested", std::string(100'000, '['));
  check_header("expected an object", "[]");
  check_header("appears twice", "{" + kNorm + "," + kNorm + "}");
  check_header("expected an object", R"({"model.norm.weight": 3})");
}

// A parser that searches all siblings of every value would take minutes for these.
TEST_CASE("bad/safetensors header of 200 000 tensors") {
  std::string header = "{" + kNorm;
  for (int i = 0; i < 200'000; ++i)
    header += fmt::format(R"(,"t{}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})", i,
                          32 + 4 * i, 36 + 4 * i);
  check_header("is unexpected in a llama model", header + "}", 32 + 4 * 200'000);
}

// A weight that no block format can represent is refused by name, with advice.
TEST_CASE("bad/packed weights") {
  const auto refused = [](const std::string& part, const std::string& quantization) {
    std::string config = kConfig;
    config.insert(config.size() - 1, ", \"quantization_config\": {" + quantization + "}");
    check_folder("config.json", part, config, safetensors("{" + kNorm + "}", std::string(32, 'x')));
  };
  refused(
      "quant_method is \"hqq\", expected gptq, awq, bitsandbytes, fp8, fbgemm_fp8, "
      "compressed-tensors, modelopt, mxfp4 or bitnet, or a folder saved unpacked",
      R"("quant_method": "hqq")");
  refused("format is \"marlin-24\", expected float-quantized, ",
          R"("quant_method": "compressed-tensors", "format": "marlin-24")");
  refused("bits is 3", R"("quant_method": "gptq", "bits": 3, "group_size": 128)");
  refused("group_size is 16", R"("quant_method": "awq", "bits": 4, "group_size": 16)");
  refused("version is \"gemv\"",
          R"("quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv")");

  // Act-order with groups that are not of 32 columns, an invalid group number, a missing tensor.
  const std::string folder = golden("packed/gptq4_order"),
                    whole = read_file(folder + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  const auto names = nlohmann::json::parse(whole.substr(8, header));
  const size_t order =
      8 + header + size_t(names["model.layers.0.mlp.down_proj.g_idx"]["data_offsets"][0]);
  const auto with = [&](const std::string& part, const std::string& weights) {
    check_folder("model.safetensors", part, read_file(folder + "/config.json"), weights);
  };
  std::string mixed = whole, none = whole, missing = whole;
  mixed[order + 4 * 5] = char(mixed[order + 4 * 5] == 0 ? 1 : 0);
  with("that begins or ends within a block of 32 columns, expected groups of a multiple of 32",
       mixed);
  none[order + 4 * 5] = 77;
  with("down_proj.g_idx has group 77 for column 5, expected 0 to 2", none);
  missing.replace(missing.find("down_proj.qzeros"), 16, "down_proj.qzerox");
  with("down_proj.qzeros is missing", missing);
}

// Files of bitsandbytes and others with one defect.
TEST_CASE("bad/packed codes and their scales") {
  const auto with = [](const std::string& name, const std::string& from, const std::string& to,
                       const std::string& part) {
    const std::string folder = golden("packed/") + name;
    std::string weights = read_file(folder + "/model.safetensors");
    const size_t at = weights.find(from);
    REQUIRE_MESSAGE(at != weights.npos, from);
    check_folder("model.safetensors", part, read_file(folder + "/config.json"),
                 weights.replace(at, from.size(), to));
  };
  with("bnb4", "down_proj.weight.quant_map", "down_proj.weight.quant_max",
       "down_proj.weight.quant_map is missing, expected it together with");
  with("bnb4", "down_proj.weight.nested_absmax", "down_proj.weight.nested_absmay",
       "down_proj.weight.nested_absmax is missing");
  with("bnb4", R"("blocksize": 64)", R"("blocksize": 65)",
       "blocksize is 65, expected a multiple of 64, at most 1048576, or a folder saved unpacked");
  with("bnb4", R"("shape": [)", R"("shape": {)", "not valid JSON");
  with("bnb8", "down_proj.SCB", "down_proj.SCX", "down_proj.SCX is unexpected");
  with("nvfp4", "down_proj.weight_global_scale", "down_proj.weight_global_scalf",
       "down_proj.weight_scale_2 is missing");
  with("words", "down_proj.weight_shape", "down_proj.weight_shapf",
       "down_proj.weight_shape is missing");
}

TEST_CASE("bad/safetensors entries") {
  check_entry("data_offsets[1] is 0", "[0,32]", "[32,0]");
  check_entry("data_offsets[1] is 36", "[0,32]", "[0,36]");
  check_entry("data_offsets[0] is -4", "[0,32]", "[-4,28]");
  check_entry("data_offsets", "[0,32]", "[0,18446744073709551615]");
  check_entry("data_offsets", "[0,32]", "[0,32,64]");
  check_entry("data_offsets", "[0,32]", "\"all\"");
  check_entry("as the shape says", "[8]", "[9]");
  check_entry("more than 2^64", "[8]", "[4294967296,4294967296,4294967296]");
  check_entry("shape[0] is -8", "[8]", "[-8]");
  check_entry("shape[0] is 8.5", "[8]", "[8.5]");
  check_entry("shape[0] is 0", "[8]", "[0]");
  check_entry("shape is 8", "[8]", "8");
  check_entry("dtype is \"Q3\"", "F32", "Q3");
  check_entry("dtype F64", "\"F32\",\"shape\":[8]", "\"F64\",\"shape\":[4]");
  check_entry("dtype is missing", "\"dtype\":\"F32\",", "");
  check_entry("model.nerm.weight is unexpected", "norm", "nerm");
  check_entry("layers.1.input_layernorm.weight is unexpected", "model.norm",
              "model.layers.1.input_layernorm");
  check_entry("shape (2, 2, 2)", "[8]", "[2,2,2]");
  check_entry("4 rows, expected 2 heads of 4", "norm.weight\":{\"dtype\":\"F32\",\"shape\":[8]",
              "layers.0.self_attn.q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[4,2]");
}

TEST_CASE("bad/safetensors overlap, hole, same tensor under two names") {
  auto two = [](const std::string& name, const std::string& offsets) {
    return "{" + kNorm + R"(,")" + name + R"(":{"dtype":"F32","shape":[8],"data_offsets":)" +
           offsets + "}}";
  };
  check_header("begins at 16, expected 32", two("x", "[16,48]"), 48);
  check_header("begins at 4, expected 0",
               R"({"model.norm.weight":{"dtype":"F32","shape":[8],"data_offsets":[4,36]}})", 36);
  check_header("begins at 40, expected 32", two("x", "[40,72]"), 72);
  check_header("tensors have 64 bytes, expected 72, all bytes after the header",
               two("x", "[32,64]"), 72);
  check_header("norm.weight appears twice", two("norm.weight", "[32,64]"), 64);
}

TEST_CASE("bad/safetensors shards") {
  auto check = [](const std::string& named, const std::string& part, const std::string& map,
                  Exit code = Exit::bad_file) {
    TempFolder temp;
    write_file(temp / "config.json", kConfig);
    write_file(temp / "one.safetensors", safetensors("{" + kNorm + "}", std::string(32, '\0')));
    write_file(temp / "model.safetensors.index.json", R"({"weight_map": )" + map + "}");
    check_refused(temp.path, named, part, code);
  };
  const std::string index = "model.safetensors.index.json",
                    norm = R"("model.norm.weight": "one.safetensors")";
  for (auto shard :
       {"../one.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "\\u001b[31m"})
    check(index, "expected a plain file name",
          R"({"model.norm.weight": ")" + std::string(shard) + "\"}");
  check("two.safetensors", "", "{" + norm + R"(, "x": "two.safetensors"})", Exit::io);
  check(index, "weight_map has tensor x", "{" + norm + R"(, "x": "one.safetensors"})");
  check("one.safetensors", "is not in the weight_map", R"({"x": "one.safetensors"})");
  check(index, "weight_map.x is 3", R"({"x": 3})");
  check(index, "weight_map is missing", "null");
}

// Checks kConfig with one text replaced or an entry added.
void check_config(const std::string& part, const std::string& from, const std::string& to) {
  std::string config = kConfig;
  check_folder("config.json", part, config.replace(config.find(from), from.size(), to), "");
}
void check_added(const std::string& part, const std::string& entry) {
  check_config(part, "}", ", " + entry + "}");
}

TEST_CASE("bad/config.json") {
  check_folder("config.json", "not valid JSON", "{\"a\": \x1b", "");
  check_folder("config.json", "architectures is missing", "{}", "");
  check_config("architectures[0] is \"Gemma\\xc2\\x9b", "LlamaForCausalLM", "Gemma\\u009b");
  check_config("architectures", "[\"LlamaForCausalLM\"]", "\"LlamaForCausalLM\"");
  for (std::string key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size", "max_position_embeddings"})
    check_config(key + " is missing", "\"" + key, "\"x_" + key);
  check_config("hidden_size is \"8\"", "\"hidden_size\": 8", "\"hidden_size\": \"8\"");
  check_config("hidden_size is 8.0", "\"hidden_size\": 8", "\"hidden_size\": 8.0");
  check_config("hidden_size is 18446744073709551615", "\"hidden_size\": 8",
               "\"hidden_size\": 18446744073709551615");
  check_config("head_count is 0", "heads\": 2", "heads\": 0");
  check_config("head_count is 3", "heads\": 2", "heads\": 3");
  check_config("head_count is -2", "heads\": 2", "heads\": -2");
  check_added("head_count_kv is 0", R"("num_key_value_heads": 0)");
  check_added("head_count_kv is 3", R"("num_key_value_heads": 3)");
  check_added("rope_dim is 3", R"("head_dim": 3)");
  check_added("norm_epsilon is 0", R"("rms_norm_eps": 0)");
  check_added("range of a double", R"("rms_norm_eps": 1e999)");
  check_added("hidden_act is \"gelu\"", R"("hidden_act": "gelu")");
  check_added("rope_scaling.rope_type is \"xpos\"", R"("rope_scaling": {"rope_type": "xpos"})");
  check_added(" original_max_position_embeddings is missing",
              R"("rope_scaling": {"rope_type": "longrope"})");
  check_added("rope_scaling.factor is missing", R"("rope_scaling": {"type": "linear"})");
  check_added("rope_scaling.factor is \"two\"",
              R"("rope_scaling": {"type": "linear", "factor": "two"})");
  check_added(
      "rope_scaling.low_freq_factor is missing",
      R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8})");
  check_added("rope_high_freq_factor is 1", R"("rope_scaling": {"rope_type": "llama3", "factor": 8,
    "original_max_position_embeddings": 8, "low_freq_factor": 1, "high_freq_factor": 1})");
  check_added("rope_scaling is 4", R"("rope_scaling": 4)");
  check_added("partial_rotary_factor is 0.5", R"("partial_rotary_factor": 0.5)");
  check_config("sliding_window is -1", R"("LlamaForCausalLM"],)",
               R"("MistralForCausalLM"], "sliding_window": -1,)");
  check_added("is_causal is false, expected true", R"("is_causal": false)");
  check_added(
      "rope_scaling is an object, expected no such key together with rope_parameters",
      R"("rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 1})");
  check_added("hidden_size appears twice", R"("hidden_size": 8)");
}

TEST_CASE("bad/gpt2 config") {
  auto check = [](const std::string& part, const std::string& entry) {
    check_folder(
        "config.json", part,
        R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 4, "n_layer": 1, "vocab_size": 3,
      "n_positions": 8, )" +
            entry + "}",
        "");
  };
  check("activation_function is \"relu\"", R"("n_head": 1, "activation_function": "relu")");
  check("scale_attn_by_inverse_layer_idx is true",
        R"("n_head": 1, "scale_attn_by_inverse_layer_idx": true)");
  check("scale_attn_weights is false", R"("n_head": 1, "scale_attn_weights": false)");
  check("n_head is missing", R"("n_ctx": 8)");
  check("head_count is 3", R"("n_head": 3)");
}

// Checks the config.json of a golden model with one text replaced.
void check_golden(const std::string& model, const std::string& part, const std::string& from,
                  const std::string& to) {
  std::string config = read_file(golden("models/" + model + "/config.json"));
  REQUIRE(config.find(from) != std::string::npos);
  check_folder("config.json", part, config.replace(config.find(from), from.size(), to), "");
}

TEST_CASE("bad/config.json of architectures with keys of their own") {
  check_golden("qwen2", "use_sliding_window is true, expected false",
               "\"use_sliding_window\": false", "\"use_sliding_window\": true");
  check_golden("phi2", "model.rope_dim is 7, expected an even number of at most head_dim 20", "0.4",
               "0.35");
  check_golden("phi2", "model.rope_dim is 0, expected 2 to", "0.4", "1e-3");
  check_golden("phi2", "partial_rotary_factor is 1e+300, expected up to 1000000000000", "0.4",
               "1e300");
  check_golden("gemma4",
               "model.kv_readers is 6, expected fewer: layer 0 has no earlier layer of its kind",
               "\"num_kv_shared_layers\": 2", "\"num_kv_shared_layers\": 6");
  check_golden("gemma4", "model.head_count_kv[0] is 3, expected a divisor of head_count 4",
               "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3");
  check_golden("stablelm", "partial_rotary_factor is \"all\", expected a number", "0.25",
               "\"all\"");
  check_golden("stablelm", "qk_layernorm is true, expected false", "{", "{\"qk_layernorm\": true,");
  check_golden("smollm3", "model.rope_layers has 4 entries, expected 5", "[1, 1, 1, 0, 1]",
               "[1, 1, 1, 0]");
  check_golden("smollm3", "model.rope_layers[3] is 2, expected 0 to 1", "[1, 1, 1, 0, 1]",
               "[1, 1, 1, 2, 1]");
  check_golden("smollm3", "no_rope_layers is 4, expected an array of integers", "[1, 1, 1, 0, 1]",
               "4");
  check_golden("smollm3", "no_rope_layer_interval is 3, expected 4", "layer_interval\": 4",
               "layer_interval\": 3");
  check_golden("phi3_longrope", "model.rope_short_factors has 5 entries, expected 6", "[1.0, 1.1, ",
               "[1.0, ");
  check_golden("phi3_longrope", "model.rope_long_factors[1] is 0, expected a number above 0",
               "[1.0, 1.5, ", "[1.0, 0, ");
  check_golden("phi3_longrope", "rope_scaling.long_factor is 1.5, expected an array of numbers",
               "[1.0, 1.5, 2.5, 4.0, 7.0, 11.0]", "1.5");
  check_golden("gemma3", "layer_types[1] is \"odd\", expected sliding_attention or full_attention",
               "[\"sliding_attention\", \"sliding_attention\"", "[\"sliding_attention\", \"odd\"");
  check_golden("gemma3", "model.window_layers has 3 entries, expected 4",
               "[\"sliding_attention\", \"sliding_attention\"", "[\"sliding_attention\"");
}

TEST_CASE("bad/config.json of MiniMax-01: integers are words, and one factor is for all") {
  check_golden("minimax_01",
               "layer_types[1] is 2, expected full_attention, linear_attention, 1 or 0",
               "\"full_attention\"", "2");
  check_golden("gemma3", "layer_types[1] is 0, expected sliding_attention or full_attention",
               "[\"sliding_attention\", \"sliding_attention\"", "[\"sliding_attention\", 0");
  const std::string linear = "\"linear_attn_alpha_factor\": 3.5565588200778455,";
  check_golden("minimax_01",
               "model.linear_attn_alpha_factor is 1, expected full_attn_alpha_factor, 3.556",
               linear, "");
  check_golden("minimax_01",
               "model.mlp_alpha_factor is 1.5, expected full_attn_alpha_factor, 3.556",
               "\"mlp_alpha_factor\": 3.5565588200778455", "\"mlp_alpha_factor\": 1.5");
}

TEST_CASE("bad/config.json with numbers out of range, with parts of integers, and with lists") {
  const auto first = [](const std::string& model, const std::string& part, const std::string& key,
                        const std::string& found, const std::string& value) {
    check_golden(model, part, "\"" + key + "\": " + found, "\"" + key + "\": " + value);
  };
  first("granite_swa", "model.rope_layer_thetas[0] is -1, expected 0 to 1000000000000",
        "layer_rope_theta", "[0.0", "[-1");
  first("muse_glimmer", "model.rope_layer_thetas[0] is 1e+300, expected 0 to 1000000000000",
        "layer_rope_theta", "[0.0", "[1e300");
  first("openelm", "model.feed_forward_parts[0] is 1e+300, expected 0 to 10000", "ffn_multipliers",
        "[0.5", "[1e300");
  first("deci", "model.feed_forward_parts[0] is 1e+300, expected 0 to 10000", "ffn_mult", "4.0",
        "1e300");
  first("deepseek_v3", "qk_nope_head_dim is 16.5, expected an integer", "qk_nope_head_dim", "16",
        "16.5");
  first("ernie4_5_moe", "moe_num_shared_experts is 1.5, expected an integer",
        "moe_num_shared_experts", "2", "1.5");
  // Only Hunyuan's numbers of experts may be lists, and the items must be equal.
  first("hunyuan_moe", "hidden_size is an array, expected an integer", "hidden_size", "32",
        "[32, 32]");
  first("hunyuan_moe", "moe_topk is an array, expected the same in all layers", "moe_topk",
        "[3, 3]", "[3, 2]");
  first("hunyuan_moe", "num_shared_expert[1] is 2, expected 1", "num_shared_expert", "[1, 1]",
        "[1, 2]");
  first("glm4moe", "first_k_dense_replace is an array, expected an integer",
        "first_k_dense_replace", "1", "[1, 1, 1]");

  ModelSource source = import_model(golden("models/granite_swa"));
  source.meta.set_floats("model.rope_layer_thetas", {0, 1e4, 1e4, 1e4, NAN});
  CHECK(contains(error_of([&] { model_of(source.meta); }).what(),
                 "model.rope_layer_thetas[4] is nan, expected 0 to 1000000000000"));
}

TEST_CASE("bad/config.json with features that the graphs do not have") {
  check_golden("falcon", "alibi is true, expected false", "\"alibi\": false", "\"alibi\": true");
  check_golden("mpt", "attn_config.qk_ln is true, expected false", "\"qk_ln\": false",
               "\"qk_ln\": true");
  check_golden("starcoder", "multi_query is false, expected true", "\"multi_query\": true",
               "\"multi_query\": false");
  check_golden("gpt_neo", "expected num_layers words, [global, local, global]", "\"local\"",
               "\"global\"");
  check_golden("gpt_neo",
               "attention_types is an array, expected num_layers words, [global, local, global]",
               "[[[\"global\", \"local\"], 1], [[\"global\"], 1]]", "[[[\"global\"], 3]]");
  check_golden("codegen", "model.head_count is 6, expected a multiple of 4", "\"n_head\": 4",
               "\"n_head\": 6");
  check_golden("opt", "do_layer_norm_before is false, expected true",
               "\"do_layer_norm_before\": true", "\"do_layer_norm_before\": false");
  check_golden("opt", "word_embed_proj_dim is 32, expected hidden_size, 48",
               "\"word_embed_proj_dim\": 48", "\"word_embed_proj_dim\": 32");
  check_golden("gptneox", "hidden_act is \"tanh\", expected gelu, gelu_new, ", "\"gelu\"",
               "\"tanh\"");
  check_golden("gemma4",
               "model.expert_count is 0, expected 2 or more, because enable_moe_block is true", "{",
               "{\"enable_moe_block\": true,");
}

TEST_CASE("bad/safetensors tensor of several parts") {
  const std::string config = read_file(golden("models/phi3/config.json"));
  const std::string header =
      R"({"model.layers.0.self_attn.qkv_proj.weight":{"dtype":"F32","shape":[SHAPE,4],"data_offsets":[0,2032]}})";
  std::string wrong = header;
  check_folder("model.safetensors", "has 127 rows, expected 128 for all of its parts", config,
               safetensors(wrong.replace(wrong.find("SHAPE"), 5, "127"), std::string(2032, '\0')));
}

void check_tokenizer(const std::string& part, const std::string& name, const std::string& content) {
  TempFolder temp;
  write_file(temp / "config.json", kConfig);
  write_file(temp / "model.safetensors", safetensors("{" + kNorm + "}", std::string(32, '\0')));
  write_file(temp / name, content);
  check_refused(temp.path, name, part);
}

TEST_CASE("bad/tokenizer.json") {
  auto check = [](const std::string& part, const std::string& model,
                  const std::string& pre = R"({"type": "ByteLevel"})",
                  const std::string& more = "") {
    check_tokenizer(part, "tokenizer.json",
                    R"({"model": )" + model + R"(, "pre_tokenizer": )" + pre + more + "}");
  };
  const std::string good = R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})";
  check("model.type is \"WordLevel\", expected BPE, Unigram or WordPiece",
        R"({"type": "WordLevel", "vocab": {}})");
  check("model.vocab[0] is an array", R"({"type": "Unigram", "vocab": [["a", 1, 2]]})",
        R"({"type": "Metaspace"})");
  check("model.unk_id is 7", R"({"type": "Unigram", "unk_id": 7, "vocab": [["a", 1]]})",
        R"({"type": "Metaspace"})");
  check("pre_tokenizer.type is \"Whitespace\"", R"({"type": "Unigram", "vocab": [["a", 1]]})",
        R"({"type": "Whitespace"})");
  check("continuing_subword_prefix is \"@@\"",
        R"({"type": "WordPiece", "vocab": {"a": 0}, "continuing_subword_prefix": "@@"})",
        R"({"type": "BertPreTokenizer"})");
  check("model.vocab is missing", "{}");
  check("model.vocab is an array", R"({"vocab": []})");
  check("model.vocab.a is -1", R"({"vocab": {"a": -1}})");
  check("model.vocab.a is 99999999999", R"({"vocab": {"a": 99999999999}})");
  check("id 0 is", R"({"vocab": {"a": 0, "b": 0}})");
  check("at most vocab_size 3", R"({"vocab": {"a": 0, "b": 1, "c": 2, "d": 3}})");
  check("merge 0 is \"ab\"", R"({"vocab": {"a": 0, "b": 1}, "merges": ["ab"]})");
  check("merges[0] is an array", R"({"vocab": {"a": 0, "b": 1}, "merges": [["a", "b", "c"]]})");
  check("behavior is \"Removed\"", good,
        R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "x"},
    "behavior": "Removed"}, {"type": "ByteLevel"}]})");
  check("type is \"Whitespace\"", good, R"({"type": "Whitespace"})");
  check("pre_tokenizer is missing", good, "null");
  check("normalizer.type is \"NFX\", expected NFC,", good, R"({"type": "ByteLevel"})",
        R"(, "normalizer": {"type": "NFX"})");
  check("precompiled_charsmap is \"*\"", good, R"({"type": "ByteLevel"})",
        R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "*"})");
  check("cls", good, R"({"type": "ByteLevel"})",
        R"(, "post_processor": {"type": "BertProcessing"})");
  check("id of a piece is -1", good, R"({"type": "ByteLevel"})",
        R"(, "added_tokens": [{"id": -1, "content": "x"}])");
  check("content is missing", good, R"({"type": "ByteLevel"})", R"(, "added_tokens": [{"id": 1}])");
  check("nested", good, std::string(5000, '['));
}

TEST_CASE("bad/tokenizer.model") {
  const std::string name = "tokenizer.model";
  const std::string piece(
      "\x0a\x03\x0a\x01"
      "a",
      5);
  check_tokenizer("model_type is 3, expected 1 (unigram) or 2 (BPE)", name,
                  piece + std::string("\x12\x02\x18\x03", 4));
  check_tokenizer("message", name, std::string("\x0a\x7f\x0a", 3));
  check_tokenizer("message", name, std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11));
  check_tokenizer("more than 10 bytes", name, std::string(20, '\xff'));
  check_tokenizer("wire type is 7", name, "\x0f");
  check_tokenizer("type of piece 0 is 9", name,
                  std::string("\x0a\x05\x0a\x01"
                              "a\x18\x09",
                              7));
}

}  // namespace
}  // namespace chaski::test
