#include "models/import/hf/write_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "ggml-like-tensor/base/error.h"
#include "models/architecture.h"

namespace chaski {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const Key& key, const Value& value, const std::string& path,
                     std::string_view layout) {
  if (auto* number = std::get_if<double>(&value.data)) {
    if (value.type != ValueType::f32) return *number;
    // the shortest decimal of an f32: 1e-05, not 9.999999747378752e-06
    return std::stod(fmt::format("{}", float(*number)));
  }
  if (auto* whole = std::get_if<int64_t>(&value.data)) {
    if (key.kind == Kind::flag) return *whole != 0;
    return *whole;
  }
  if (auto* text = std::get_if<std::string>(&value.data)) return *text;
  fail(Exit::bad_file, "{}: {} is a list, expected a number for {}", path, escaped(key.ours),
       layout);
}

void put_keys(ordered_json& config, const ModelSource& source, const char* hf,
              std::string_view layout) {
  const auto reader = std::find_if(
      architectures().begin(), architectures().end(),
      [&](const Architecture& a) { return std::find(a.hf.begin(), a.hf.end(), hf) != a.hf.end(); });
  const std::unique_ptr<Model> model = reader->make();
  Keys keys;
  model->keys(keys);
  for (const Key& key : keys.list) {
    key.read(source.meta, key.ours);
    const Value* value = source.meta.find(key.ours);
    if (!value || key.hf.empty() || (key.applies && !key.applies())) continue;
    if (key.ours == "model.rope_scaling" && source.meta.str(key.ours) == "none") continue;
    if (key.ours == "model.sliding_window" && source.meta.integer(key.ours) == 0) continue;
    const auto top = std::find_if(key.hf.begin(), key.hf.end(),
                                  [](auto& place) { return place.find('.') == place.npos; });
    const ordered_json said = json_of(key, *value, source.path, layout);
    if (top != key.hf.end() && key.ours != "model.rope_original_context")
      config[*top] = said;
    else
      config["rope_scaling"][key.hf[0].substr(key.hf[0].find('.') + 1)] = said;
  }
}

}  // namespace

ordered_json config_of(const ModelSource& source, std::string_view layout) {
  const Metadata& meta = source.meta;
  const std::string architecture = meta.str("general.architecture");
  const bool window = meta.integer("model.sliding_window", 0) > 0;
  const std::pair<const char*, const char*> type =
      architecture == "qwen2"   ? std::pair("Qwen2ForCausalLM", "qwen2")
      : architecture == "qwen3" ? std::pair("Qwen3ForCausalLM", "qwen3")
      : window                  ? std::pair("MistralForCausalLM", "mistral")
                                : std::pair("LlamaForCausalLM", "llama");
  if (architecture != "llama" && architecture != "qwen2" && architecture != "qwen3")
    fail(Exit::bad_file, "{}: general.architecture is {}, expected llama, qwen2 or qwen3 for {}",
         source.path, escaped(architecture), layout);
  if (meta.integer("model.rope_dim") != meta.integer("model.head_dim"))
    fail(Exit::bad_file, "{}: model.rope_dim is {}, expected head_dim {} for {}", source.path,
         meta.integer("model.rope_dim"), meta.integer("model.head_dim"), layout);
  ordered_json config;
  config["architectures"] = ordered_json::array({type.first});
  config["model_type"] = type.second;
  config["hidden_act"] = "silu";
  config["torch_dtype"] = "float16";
  config["tie_word_embeddings"] = !source.find("output");
  if (architecture == "qwen3" || (architecture == "llama" && !window))
    config["attention_bias"] = source.find("layer.0.attn_q.bias") != nullptr;
  if (architecture == "llama" && !window)
    config["mlp_bias"] = source.find("layer.0.ffn_up.bias") != nullptr;
  if (meta.has("tokenizer.bos_id")) config["bos_token_id"] = meta.integer("tokenizer.bos_id");
  const auto& ends = meta.ints("tokenizer.eos_ids");
  for (size_t i = 0; i < ends.size(); ++i) config["eos_token_id"].push_back(ends[i]);
  put_keys(config, source, type.first, layout);
  return config;
}

}  // namespace chaski
