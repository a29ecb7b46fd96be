#include "models/import/hf_config.h"

#include <algorithm>

#include "ggml-like-tensor/base/error.h"
#include "models/import/folder.h"
#include "models/import/hyperparameters.h"
#include "models/import/json_file.h"

namespace chaski {
namespace {

constexpr std::string_view kSupported = "LlamaForCausalLM, MistralForCausalLM or GPT2LMHeadModel";

std::string architecture_of(const Json& config) {
  const Json names = config["architectures"];
  if (names.size() != 1) names.wrong(fmt::format("a list with {}", kSupported));
  const std::string& name = names.at(0).str();
  if (name == "LlamaForCausalLM" || name == "MistralForCausalLM") return "llama";
  if (name == "GPT2LMHeadModel") return "gpt2";
  names.at(0).wrong(kSupported);
}

void expect_one_of(const Json& value, std::string_view otherwise,
                   std::initializer_list<std::string_view> allowed) {
  const std::string found = value.str(otherwise);
  if (std::find(allowed.begin(), allowed.end(), found) == allowed.end())
    value.wrong(fmt::format("{}", *allowed.begin()));
}

void expect_flag(const Json& value, bool expected) {
  if (value.boolean(expected) != expected) value.wrong(expected ? "true" : "false");
}

void copy_number(const Json& from, Metadata& meta, const char* key) {
  if (from.present()) meta.set_float(key, from.number());
}

void read_yarn(const Json& rope, Metadata& meta) {
  copy_number(rope["beta_fast"], meta, "model.rope_beta_fast");
  copy_number(rope["beta_slow"], meta, "model.rope_beta_slow");
  copy_number(rope["attention_factor"], meta, "model.rope_attention_factor");
  if (rope.has("mscale")) rope["mscale"].wrong("no mscale");
}

// "rope_scaling" beside "rope_theta" in older files, "rope_parameters" with both inside in newer
// ones; the method is "type" in the oldest.
void read_rope(const Json& config, Metadata& meta) {
  const Json rope =
      config.has("rope_parameters") ? config["rope_parameters"] : config["rope_scaling"];
  const Json theta = rope.has("rope_theta") ? rope["rope_theta"] : config["rope_theta"];
  meta.set_float("model.rope_theta", theta.number(10000));
  const Json partial = rope.has("partial_rotary_factor") ? rope["partial_rotary_factor"]
                                                         : config["partial_rotary_factor"];
  if (partial.number(1) != 1) partial.wrong("1");

  const Json method = rope.has("rope_type") ? rope["rope_type"] : rope["type"];
  const std::string name = method.str("default");
  meta.set_str("model.rope_scaling", name == "default" ? "none" : name);
  if (name == "default") return;
  if (name != "linear" && name != "llama3" && name != "yarn")
    method.wrong("default, linear, llama3 or yarn");
  meta.set_float("model.rope_factor", rope["factor"].number());
  if (name == "linear") return;
  const Json original = rope["original_max_position_embeddings"];
  meta.set_int(
      "model.rope_original_context",
      name == "yarn" ? original.integer(meta.integer("model.context_length")) : original.integer());
  if (name == "yarn") return read_yarn(rope, meta);
  meta.set_float("model.rope_low_freq_factor", rope["low_freq_factor"].number());
  meta.set_float("model.rope_high_freq_factor", rope["high_freq_factor"].number());
}

void read_llama(const Json& config, Metadata& meta) {
  meta.set_int("model.context_length", config["max_position_embeddings"].integer());
  meta.set_int("model.embedding_length", config["hidden_size"].integer());
  meta.set_int("model.block_count", config["num_hidden_layers"].integer());
  meta.set_int("model.feed_forward_length", config["intermediate_size"].integer());
  const int64_t heads = config["num_attention_heads"].integer();
  meta.set_int("model.head_count", heads);
  meta.set_int("model.head_count_kv", config["num_key_value_heads"].integer(heads));
  if (config.has("head_dim")) meta.set_int("model.head_dim", config["head_dim"].integer());
  if (config.has("sliding_window"))
    meta.set_int("model.sliding_window", config["sliding_window"].integer());
  meta.set_float("model.norm_epsilon", config["rms_norm_eps"].number(1e-6));
  expect_one_of(config["hidden_act"], "silu", {"silu"});
  read_rope(config, meta);
}

void read_gpt2(const Json& config, Metadata& meta) {
  const int64_t width = config["n_embd"].integer(), heads = config["n_head"].integer();
  meta.set_int("model.context_length", config["n_positions"].integer());
  meta.set_int("model.embedding_length", width);
  meta.set_int("model.block_count", config["n_layer"].integer());
  if (width < 1 || width > INT32_MAX) config["n_embd"].wrong("a width");  // before it is multiplied
  meta.set_int("model.feed_forward_length", config["n_inner"].integer(4 * width));
  meta.set_int("model.head_count", heads);
  meta.set_float("model.norm_epsilon", config["layer_norm_epsilon"].number(1e-5));
  expect_one_of(config["activation_function"], "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
  expect_flag(config["scale_attn_weights"], true);
  expect_flag(config["scale_attn_by_inverse_layer_idx"], false);
  expect_flag(config["add_cross_attention"], false);
}

void append_ids(const Json& value, std::vector<int64_t>& ids) {
  if (!value.present()) return;
  if (!value.is_array()) return ids.push_back(value.integer());
  for (size_t i = 0; i < value.size(); ++i) ids.push_back(value.at(i).integer());
}

}  // namespace

HfConfig read_hf_config(const std::string& folder, Metadata& meta) {
  const Json config = read_json(folder + "/config.json");
  meta.origin = folder + "/config.json";
  const std::string architecture = architecture_of(config);
  meta.set_str("general.architecture", architecture);
  architecture == "gpt2" ? read_gpt2(config, meta) : read_llama(config, meta);

  HfConfig found;
  found.vocab_size = config["vocab_size"].integer();
  meta.set_int("model.vocab_size", found.vocab_size);
  complete_hyperparameters(meta);

  found.tied = config["tie_word_embeddings"].boolean(architecture == "gpt2");
  found.bos_id = config["bos_token_id"].integer(-1);
  append_ids(config["eos_token_id"], found.eos_ids);
  const std::string generation = folder + "/generation_config.json";
  if (exists(generation)) append_ids(read_json(generation)["eos_token_id"], found.eos_ids);
  return found;
}

}  // namespace chaski
