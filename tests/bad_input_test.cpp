// Foreign files nobody should trust: each is refused with one Error that names the file, before anything is allocated for it. Every
// file here is made by hand, wrong in one place.
#include <functional>

#include "models/gguf.h"
#include "tests/import_support.h"

namespace chaski::test {
namespace {

// Imports `path`; the line must name `named` and contain `part`, and be fit for a terminal.
void check_refused(const std::string& path, const std::string& named, const std::string& part, Exit code = Exit::bad_file) {
  CAPTURE(part);
  try {
    import_model(path);
    FAIL_CHECK("was not refused");
  } catch (const Error& error) {
    const std::string line = error.what();
    CAPTURE(line);
    CHECK(error.code == code);
    CHECK(line.find(named) != std::string::npos);
    CHECK(line.find(part) != std::string::npos);
    CHECK(line.size() < 1500);
    for (unsigned char c : line) CHECK((c >= 0x20 && c != 0x7f));
  }
}

void check_gguf(const std::string& part, const std::function<void(Gguf&)>& damage) {
  TempFolder temp;
  Gguf g = tiny_llama();
  damage(g);
  check_refused(write_file(temp / "bad.gguf", g.build()), "bad.gguf", part);
}

std::string u32_payload(uint32_t type, uint32_t n) {
  std::string out;
  append(out, type), append(out, n);
  return out;
}

std::string array_payload(uint32_t element, uint64_t n, const std::string& data = "") {
  std::string out;
  append<uint32_t>(out, 9), append(out, element), append(out, n);
  return out + data;
}

TEST_CASE("bad/gguf cut short anywhere") {
  TempFolder temp;
  const std::string whole = tiny_llama().build();
  const std::string path = temp / "cut.gguf";
  for (size_t n = 4; n < whole.size() - 8; ++n) {  // the last tensor is followed by padding
    write_file(path, whole.substr(0, n));
    CAPTURE(n);
    check_refused(path, "cut.gguf", "");
  }
}

TEST_CASE("bad/gguf with any byte of the header replaced is read or refused, never worse") {
  TempFolder temp;
  const std::string whole = tiny_llama().build(), path = temp / "damaged.gguf";
  size_t refused = 0;
  for (size_t at = 4; at < 1600; at += 3) {
    for (char byte : {'\xff', '\x80'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      write_file(path, damaged);
      try {
        for (auto& t : import_model(path).tensors) bytes_of(t);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("damaged.gguf") != std::string::npos);
        ++refused;
      }
    }
  }
  CHECK(refused > 100);
}

TEST_CASE("bad/gguf header") {
  check_gguf("version is 1", [](Gguf& g) { g.version = 1; });
  check_gguf("version is 99", [](Gguf& g) { g.version = 99; });
  check_gguf("version is 0", [](Gguf& g) { g.version = 0; });
  check_gguf("big-endian", [](Gguf& g) { g.version = 0x03000000; });
  check_gguf("key count", [](Gguf& g) { g.n_values_extra = uint64_t{1} << 60; });
  check_gguf("key count", [](Gguf& g) { g.n_values_extra = UINT64_MAX / 2; });
  check_gguf("tensor count", [](Gguf& g) { g.n_tensors_extra = uint64_t{1} << 60; });
  check_gguf("", [](Gguf& g) { g.n_tensors_extra = 1; });
}

TEST_CASE("bad/gguf keys and values") {
  std::string huge_string;
  append<uint32_t>(huge_string, 8), append<uint64_t>(huge_string, uint64_t{1} << 62);
  check_gguf("a.long.string", [&](Gguf& g) { g.raw("a.long.string", huge_string); });
  check_gguf("x.type", [](Gguf& g) { g.raw("x.type", u32_payload(13, 0)); });
  check_gguf("x.flag", [](Gguf& g) { g.raw("x.flag", std::string("\x07\0\0\0\x07", 5)); });
  check_gguf("x.nested", [](Gguf& g) { g.raw("x.nested", array_payload(9, 1, array_payload(4, 0))); });
  check_gguf("x.array", [](Gguf& g) { g.raw("x.array", array_payload(77, 1)); });
  check_gguf("x.array", [](Gguf& g) { g.raw("x.array", array_payload(10, uint64_t{1} << 61)); });
  check_gguf("UTF-8", [](Gguf& g) { g.u32("bad\xff\x1b[31mkey", 1); });
  check_gguf("UTF-8", [](Gguf& g) { g.u32("", 1); });
  check_gguf("UTF-8", [](Gguf& g) { g.u32(std::string(70000, 'k'), 1); });
  check_gguf("\\x1b[31m.key appears twice", [](Gguf& g) { g.u32("\x1b[31m.key", 1).u32("\x1b[31m.key", 1); });
  check_gguf("general.architecture is missing", [](Gguf& g) { g.drop("general.architecture"); });
  check_gguf("general.architecture is u32", [](Gguf& g) { g.drop("general.architecture").u32("general.architecture", 1); });
}

TEST_CASE("bad/gguf alignment") {
  for (int64_t alignment : {0, 3, 48, 1 << 30})
    check_gguf("general.alignment", [&](Gguf& g) { g.u32("general.alignment", alignment); });
  check_gguf("general.alignment is str", [](Gguf& g) { g.str("general.alignment", "32"); });
}

TEST_CASE("bad/gguf tensors") {
  const std::string four = floats(4);
  const uint64_t side = uint64_t{1} << 32;
  check_gguf("0 dimensions", [&](Gguf& g) { g.tensor("x", {}, 0, four); });
  check_gguf("5 dimensions", [&](Gguf& g) { g.tensor("x", {1, 1, 1, 1, 1}, 0, four); });
  check_gguf("100 dimensions", [&](Gguf& g) { g.tensor("x", std::vector<uint64_t>(100, 1), 0, four); });
  check_gguf("shape (1, 2, 2)", [&](Gguf& g) { g.tensor("x", {1, 2, 2}, 0, four); });
  check_gguf("a dimension of 0", [&](Gguf& g) { g.tensor("x", {4, 0}, 0, four); });
  check_gguf("a dimension of 0", [&](Gguf& g) { g.tensor("x", {0}, 0, four); });
  check_gguf("tensor x has shape", [&](Gguf& g) { g.tensor("x", {side, side}, 0, four); });
  check_gguf("tensor x has shape", [&](Gguf& g) { g.tensor("x", {side / 4, side}, 0, four); });
  check_gguf("tensor x has", [&](Gguf& g) { g.tensor("x", {UINT64_MAX, 1}, 0, four); });
  check_gguf("tensor x has shape", [&](Gguf& g) { g.tensor("x", {4, 1000}, 0, four); });
  check_gguf("cut short", [&](Gguf& g) { g.tensor("x", {4, 40}, 0, four); });
  check_gguf("multiple of 32", [&](Gguf& g) { g.tensor("x", {4, 4}, 2, four); });
  check_gguf("cut short", [&](Gguf& g) { g.tensor("x", {4}, 0, four, 1 << 20); });
  check_gguf("", [&](Gguf& g) { g.tensor("x", {4}, 0, four, UINT64_MAX - 31); });
  check_gguf("multiple of 32", [&](Gguf& g) { g.tensor("x", {4}, 0, four, 4); });
  check_gguf("overlap", [&](Gguf& g) { g.tensor("x", {4}, 0, four, 32); });
  check_gguf("tensor x appears twice", [&](Gguf& g) { g.tensor("x", {4}, 0, four).tensor("x", {4}, 0, four); });
  check_gguf("type IQ2_XXS", [&](Gguf& g) { g.tensor("x", {4}, 16, four); });
  check_gguf("type TQ1_0", [&](Gguf& g) { g.tensor("x", {4}, 34, four); });
  check_gguf("type MXFP4", [&](Gguf& g) { g.tensor("x", {4}, 39, four); });
  check_gguf("type number 4, expected one of F32, F16, BF16, Q8_0, Q4_0", [&](Gguf& g) { g.tensor("x", {4}, 4, four); });
  check_gguf("type number 4294967295", [&](Gguf& g) { g.tensor("x", {4}, UINT32_MAX, four); });
  check_gguf("name of tensor", [&](Gguf& g) { g.tensor("", {4}, 0, four); });
  check_gguf("name of tensor", [&](Gguf& g) { g.tensor(std::string(5000, 'n'), {4}, 0, four); });
}

TEST_CASE("bad/gguf hyperparameters") {
  for (auto key : {"llama.context_length", "llama.embedding_length", "llama.block_count", "llama.feed_forward_length",
                   "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"})
    check_gguf(std::string(key) + " is missing", [&](Gguf& g) { g.drop(key); });
  auto replaced = [](const std::string& key, int64_t n) { return [=](Gguf& g) { g.drop(key).u32(key, n); }; };
  check_gguf("head_count is 0", replaced("llama.attention.head_count", 0));
  check_gguf("head_count is 3", replaced("llama.attention.head_count", 3));
  check_gguf("head_count_kv is 0", replaced("llama.attention.head_count_kv", 0));
  check_gguf("head_count_kv is 3", replaced("llama.attention.head_count_kv", 3));
  check_gguf("block_count is 4294967295", replaced("llama.block_count", 0xffffffff));
  check_gguf("rope_dim is 3", replaced("llama.rope.dimension_count", 3));
  check_gguf("rope_dim is 64", replaced("llama.rope.dimension_count", 64));
  check_gguf("block_count is str", [](Gguf& g) { g.drop("llama.block_count").str("llama.block_count", "1"); });
  check_gguf("rope_scaling is longrope", [](Gguf& g) { g.str("llama.rope.scaling.type", "longrope"); });
  check_gguf("rope_factor", [](Gguf& g) { g.str("llama.rope.scaling.type", "linear"); });
  check_gguf("rope_factor is nan", [](Gguf& g) { g.str("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", NAN); });
  check_gguf("rope_theta is 0", [](Gguf& g) { g.f32("llama.rope.freq_base", 0); });
}

TEST_CASE("bad/gguf tokenizer") {
  auto without = [](const std::string& key, std::function<void(Gguf&)> then) { return [=](Gguf& g) { g.drop(key), then(g); }; };
  const std::string tokens = "tokenizer.ggml.tokens", scores = "tokenizer.ggml.scores", types = "tokenizer.ggml.token_type";
  check_gguf("tokens is array of i32", without(tokens, [&](Gguf& g) { g.i32s(tokens, {1, 2, 3, 4, 5}); }));
  check_gguf("tokens is str", without(tokens, [&](Gguf& g) { g.str(tokens, "abc"); }));
  check_gguf("tokens is empty", without(tokens, [&](Gguf& g) { g.strs(tokens, {}); }));
  check_gguf("tokens is empty", without(tokens, [](Gguf&) {}));
  check_gguf("scores is array of i32", without(scores, [&](Gguf& g) { g.i32s(scores, {0, 0, 0, 1, 2}); }));
  check_gguf("scores has 2 entries", without(scores, [&](Gguf& g) { g.f32s(scores, {0, 0}); }));
  check_gguf("types has 6 entries", without(types, [&](Gguf& g) { g.i32s(types, {1, 1, 1, 1, 1, 1}); }));
  check_gguf("at most model.vocab_size 5", without(tokens, [&](Gguf& g) {
               g.strs(tokens, std::vector<std::string>(6, "a")).drop(scores).drop(types);
             }));
  check_gguf("bos_token_id is str", [](Gguf& g) { g.drop("tokenizer.ggml.bos_token_id").str("tokenizer.ggml.bos_token_id", "1"); });
  check_gguf("add_bos_token is u32", [](Gguf& g) { g.u32("tokenizer.ggml.add_bos_token", 1); });
  check_gguf("eos_ids has 9", [](Gguf& g) { g.i32s("chaski.tokenizer.eos_ids", {9}); });
}

const std::string kConfig = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 4,
  "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 3, "max_position_embeddings": 32})";
const std::string kNorm = R"("model.norm.weight":{"dtype":"F32","shape":[8],"data_offsets":[0,32]})";

void check_folder(const std::string& named, const std::string& part, const std::string& config, const std::string& weights,
                  Exit code = Exit::bad_file) {
  TempFolder temp;
  write_file(temp / "config.json", config);
  if (!weights.empty()) write_file(temp / "model.safetensors", weights);
  check_refused(temp.path, named, part, code);
}

void check_header(const std::string& part, const std::string& header, size_t buffer = 32) {
  check_folder("model.safetensors", part, kConfig, safetensors(header, std::string(buffer, '\0')));
}

// Replaces `from` in the header of the one tensor.
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
  check_entry("layers.1.input_layernorm.weight is unexpected", "model.norm", "model.layers.1.input_layernorm");
  check_entry("shape (2, 2, 2)", "[8]", "[2,2,2]");
  check_entry("4 rows, expected 2 heads of 4", "norm.weight\":{\"dtype\":\"F32\",\"shape\":[8]",
              "layers.0.self_attn.q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[4,2]");
}

TEST_CASE("bad/safetensors overlap, hole, same tensor under two names") {
  auto two = [](const std::string& name, const std::string& offsets) {
    return "{" + kNorm + R"(,")" + name + R"(":{"dtype":"F32","shape":[8],"data_offsets":)" + offsets + "}}";
  };
  check_header("begins at 16, expected 32", two("x", "[16,48]"), 48);
  check_header("begins at 4, expected 0", R"({"model.norm.weight":{"dtype":"F32","shape":[8],"data_offsets":[4,36]}})", 36);
  check_header("begins at 40, expected 32", two("x", "[40,72]"), 72);
  check_header("tensors have 64 bytes, expected the 72", two("x", "[32,64]"), 72);
  check_header("norm.weight appears twice", two("norm.weight", "[32,64]"), 64);
}

TEST_CASE("bad/safetensors shards") {
  auto check = [](const std::string& named, const std::string& part, const std::string& map, Exit code = Exit::bad_file) {
    TempFolder temp;
    write_file(temp / "config.json", kConfig);
    write_file(temp / "one.safetensors", safetensors("{" + kNorm + "}", std::string(32, '\0')));
    write_file(temp / "model.safetensors.index.json", R"({"weight_map": )" + map + "}");
    check_refused(temp.path, named, part, code);
  };
  const std::string index = "model.safetensors.index.json", norm = R"("model.norm.weight": "one.safetensors")";
  for (auto shard : {"../one.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "\\u001b[31m"})
    check(index, "expected a plain file name", R"({"model.norm.weight": ")" + std::string(shard) + "\"}");
  check("two.safetensors", "", "{" + norm + R"(, "x": "two.safetensors"})", Exit::io);
  check(index, "weight_map has tensor x", "{" + norm + R"(, "x": "one.safetensors"})");
  check("one.safetensors", "is not in the weight_map", R"({"x": "one.safetensors"})");
  check(index, "weight_map.x is 3", R"({"x": 3})");
  check(index, "weight_map is missing", "null");
}

// kConfig with one text replaced, or with an entry added.
void check_config(const std::string& part, const std::string& from, const std::string& to) {
  std::string config = kConfig;
  check_folder("config.json", part, config.replace(config.find(from), from.size(), to), "");
}
void check_added(const std::string& part, const std::string& entry) { check_config(part, "}", ", " + entry + "}"); }

TEST_CASE("bad/config.json") {
  check_folder("config.json", "not valid JSON", "{\"a\": \x1b", "");
  check_folder("config.json", "architectures is missing", "{}", "");
  check_config("architectures[0] is \"Gemma\\xc2\\x9b", "LlamaForCausalLM", "Gemma\\u009b");
  check_config("architectures", "[\"LlamaForCausalLM\"]", "\"LlamaForCausalLM\"");
  for (std::string key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                          "max_position_embeddings"})
    check_config(key + " is missing", "\"" + key, "\"x_" + key);
  check_config("hidden_size is \"8\"", "\"hidden_size\": 8", "\"hidden_size\": \"8\"");
  check_config("hidden_size is 8.0", "\"hidden_size\": 8", "\"hidden_size\": 8.0");
  check_config("hidden_size is 18446744073709551615", "\"hidden_size\": 8", "\"hidden_size\": 18446744073709551615");
  check_config("head_count is 0", "heads\": 2", "heads\": 0");
  check_config("head_count is 3", "heads\": 2", "heads\": 3");
  check_config("head_count is -2", "heads\": 2", "heads\": -2");
  check_added("head_count_kv is 0", R"("num_key_value_heads": 0)");
  check_added("head_count_kv is 3", R"("num_key_value_heads": 3)");
  check_added("rope_dim is 3", R"("head_dim": 3)");
  check_added("norm_epsilon is 0", R"("rms_norm_eps": 0)");
  check_added("JSON", R"("rms_norm_eps": 1e999)");
  check_added("hidden_act is \"gelu\"", R"("hidden_act": "gelu")");
  check_added("rope_scaling.rope_type is \"longrope\"", R"("rope_scaling": {"rope_type": "longrope"})");
  check_added("rope_scaling.factor is missing", R"("rope_scaling": {"type": "linear"})");
  check_added("rope_scaling.factor is \"two\"", R"("rope_scaling": {"type": "linear", "factor": "two"})");
  check_added("rope_scaling.low_freq_factor is missing",
              R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8})");
  check_added("rope_high_freq_factor is 1", R"("rope_scaling": {"rope_type": "llama3", "factor": 8,
    "original_max_position_embeddings": 8, "low_freq_factor": 1, "high_freq_factor": 1})");
  check_added("rope_scaling is 4", R"("rope_scaling": 4)");
  check_added("partial_rotary_factor is 0.5", R"("partial_rotary_factor": 0.5)");
  check_added("sliding_window is -1", R"("sliding_window": -1)");
  check_added("hidden_size appears twice", R"("hidden_size": 8)");
}

TEST_CASE("bad/gpt2 config") {
  auto check = [](const std::string& part, const std::string& entry) {
    check_folder("config.json", part, R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 4, "n_layer": 1, "vocab_size": 3,
      "n_positions": 8, )" + entry + "}", "");
  };
  check("activation_function is \"relu\"", R"("n_head": 1, "activation_function": "relu")");
  check("scale_attn_by_inverse_layer_idx is true", R"("n_head": 1, "scale_attn_by_inverse_layer_idx": true)");
  check("scale_attn_weights is false", R"("n_head": 1, "scale_attn_weights": false)");
  check("n_head is missing", R"("n_ctx": 8)");
  check("head_count is 3", R"("n_head": 3)");
}

void check_tokenizer(const std::string& part, const std::string& name, const std::string& content) {
  TempFolder temp;
  write_file(temp / "config.json", kConfig);
  write_file(temp / "model.safetensors", safetensors("{" + kNorm + "}", std::string(32, '\0')));
  write_file(temp / name, content);
  check_refused(temp.path, name, part);
}

TEST_CASE("bad/tokenizer.json") {
  auto check = [](const std::string& part, const std::string& model, const std::string& pre = R"({"type": "ByteLevel"})",
                  const std::string& more = "") {
    check_tokenizer(part, "tokenizer.json", R"({"model": )" + model + R"(, "pre_tokenizer": )" + pre + more + "}");
  };
  const std::string good = R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})";
  check("model.type is \"Unigram\"", R"({"type": "Unigram", "vocab": []})");
  check("model.vocab is missing", "{}");
  check("model.vocab is an array", R"({"vocab": []})");
  check("model.vocab.a is -1", R"({"vocab": {"a": -1}})");
  check("model.vocab.a is 99999999999", R"({"vocab": {"a": 99999999999}})");
  check("id 0 is", R"({"vocab": {"a": 0, "b": 0}})");
  check("at most vocab_size 3", R"({"vocab": {"a": 0, "b": 1, "c": 2, "d": 3}})");
  check("merge 0 is \"a c\"", R"({"vocab": {"a": 0, "b": 1}, "merges": ["a c"]})");
  check("merge 0 is \"ab\"", R"({"vocab": {"a": 0, "b": 1}, "merges": ["ab"]})");
  check("merges[0] is an array", R"({"vocab": {"a": 0, "b": 1}, "merges": [["a", "b", "c"]]})");
  check("behavior is \"Removed\"", good, R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "x"},
    "behavior": "Removed"}, {"type": "ByteLevel"}]})");
  check("type is \"Whitespace\"", good, R"({"type": "Whitespace"})");
  check("pre_tokenizer is missing", good, "null");
  check("split is missing", good, R"({"type": "Metaspace", "replacement": "▁"})");
  check("type is \"NFC\"", good, R"({"type": "ByteLevel"})", R"(, "normalizer": {"type": "NFC"})");
  check("type is \"BertProcessing\"", good, R"({"type": "ByteLevel"})", R"(, "post_processor": {"type": "BertProcessing"})");
  check("id of a piece is -1", good, R"({"type": "ByteLevel"})", R"(, "added_tokens": [{"id": -1, "content": "x"}])");
  check("content is missing", good, R"({"type": "ByteLevel"})", R"(, "added_tokens": [{"id": 1}])");
  check("nested", good, std::string(5000, '['));
}

TEST_CASE("bad/tokenizer.model") {
  const std::string name = "tokenizer.model";
  const std::string piece("\x0a\x03\x0a\x01" "a", 5);
  check_tokenizer("(unigram)", name, piece + std::string("\x12\x02\x18\x01", 4));
  check_tokenizer("(unigram)", name, piece);
  check_tokenizer("message", name, std::string("\x0a\x7f\x0a", 3));
  check_tokenizer("message", name, std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11));
  check_tokenizer("more than 10 bytes", name, std::string(20, '\xff'));
  check_tokenizer("wire type is 7", name, "\x0f");
  check_tokenizer("type of piece 0 is 9", name, std::string("\x0a\x05\x0a\x01" "a\x18\x09", 7));
  check_tokenizer("character map", name, std::string("\x1a\x03\x12\x01x", 5));
}

// A version 0 file with a tokenizer beside it; header fields as given.
void check_llama2c(const std::string& part, std::vector<int32_t> header, int cut = 0, const std::string& tokenizer = "") {
  TempFolder temp;
  std::string file;
  for (int32_t n : header) append(file, n);
  file += floats(3 * 4 + 3 * 4 + 2 * 16 + 2 * 8 + 3 * 24 + 16 * 2);
  if (cut > 0) file.resize(file.size() - cut);
  if (!tokenizer.empty()) write_file(temp / "tok3.bin", tokenizer);
  const bool about_tokenizer = !tokenizer.empty();
  check_refused(write_file(temp / "bad.bin", file), about_tokenizer ? "tok3.bin" : "bad.bin", part);
}

std::string tokenizer_bin(int pieces, int32_t length = 1) {
  std::string out;
  append<int32_t>(out, 4);
  for (int i = 0; i < pieces; ++i) append(out, 0.0f), append<int32_t>(out, length), out += 'a';
  return out;
}

TEST_CASE("bad/llama2.c") {
  const std::vector<int32_t> good{4, 6, 1, 2, 1, 3, 16};
  check_llama2c("expected", good, 1);
  check_llama2c("expected", good, 500);
  auto with = [&](size_t field, int32_t n) {
    auto header = good;
    header[field] = n;
    return header;
  };
  check_llama2c("content is not a model", with(0, -4));
  check_llama2c("content is not a model", with(3, 0));
  check_llama2c("n_heads is 3", with(3, 3));
  check_llama2c("n_heads is 4", with(3, 4));  // heads of one number cannot be rotated
  check_llama2c("n_kv_heads is 3", with(4, 3));
  check_llama2c("bytes, expected", with(5, -3));
  check_llama2c("dim is 16000000", with(0, 16'000'000));
  check_llama2c("piece 2", good, 0, tokenizer_bin(2) + "123456789");
  check_llama2c("vocab_size", good, 0, tokenizer_bin(1));
  check_llama2c("length of piece 0 is -1", good, 0, tokenizer_bin(3, -1));
  check_llama2c("piece 0", good, 0, tokenizer_bin(3, 1 << 30));
  check_llama2c("bytes follow", good, 0, tokenizer_bin(4));
}

TEST_CASE("bad/llama2.c without magic in the importer itself") {
  TempFolder temp;
  for (int field = 0; field < 7; ++field) {
    if (field == 5) continue;  // a negative vocabulary means something
    for (int32_t n : {0, -1, INT32_MIN, INT32_MAX}) {
      std::string file;
      for (int i = 0; i < 7; ++i) append<int32_t>(file, i == field ? n : 2);
      CHECK_THROWS_AS(import_llama2c(write_file(temp / "x.bin", file), ""), Error);
    }
  }
}

TEST_CASE("bad/llama2.c versions 1 and 2") {
  auto check = [](const std::string& part, std::vector<int32_t> header, int32_t group) {
    TempFolder temp;
    std::string file = "24ka";
    for (int32_t n : header) append(file, n);
    file += '\1';
    append(file, group);
    check_refused(write_file(temp / "bad.bin", file + std::string(400, '\0')), "bad.bin", part);
  };
  check("version is 3", {3, 64, 64, 1, 2, 2, 3, 16}, 64);
  check("group_size is 0", {2, 64, 64, 1, 2, 2, 3, 16}, 0);
  check("group_size is 48", {2, 96, 96, 1, 2, 2, 3, 16}, 48);
  check("group_size is 64", {2, 96, 96, 1, 2, 2, 3, 16}, 64);
  check("bytes, expected", {2, 64, 64, 1, 2, 2, 3, 16}, 32);
  check("bytes, expected", {1, 64, 64, 1, 2, 2, 3, 16}, 0);
}

TEST_CASE("bad/llama2.c without a tokenizer says what was looked for") {
  TempFolder temp;
  std::string file;
  for (int32_t n : {4, 6, 1, 2, 1, 3, 16}) append(file, n);
  file += floats(3 * 4 + 3 * 4 + 2 * 16 + 2 * 8 + 3 * 24 + 16 * 2);
  const std::string path = write_file(temp / "story.bin", file);
  check_refused(path, "story.bin", "tok3.bin", Exit::io);
  check_refused(path, "story.bin", "tokenizer.bin", Exit::io);
  check_refused(path, "story.bin", "--tokenizer", Exit::io);
}

TEST_CASE("bad/what is no model at all") {
  TempFolder temp;
  check_refused(temp / "missing.gguf", "missing.gguf", "cannot be opened", Exit::io);
  check_refused(temp.path, temp.path, "no config.json");
  check_refused(write_file(temp / "text.txt", "Once upon a time there was a file of text."), "text.txt", "not a model");
  check_refused(write_file(temp / "empty", ""), "empty", "not a model");
  check_refused(write_file(temp / "one", "G"), "one", "not a model");
  check_refused(write_file(temp / "w.safetensors", safetensors("{}", "")), "w.safetensors", "the folder it is in");
  check_refused(write_file(temp / "zeros.bin", std::string(4096, '\0')), "zeros.bin", "not a model");
}

}  // namespace
}  // namespace chaski::test
