// No key of a config.json is ignored in silence. tests/golden/mutations.json has what transformers
// makes of each golden folder if one key is changed, removed or null (scripts/golden/
// golden_mutations.py). chaski must compute the same logits or refuse the folder by the key's name.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/session/session.h"
#include "engine/shelf/model_file.h"
#include "models/import/import.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

struct Folder {
  TempFolder temp;
  json config;
  std::vector<TokenId> tokens;

  explicit Folder(const std::string& model) {
    const std::string from = golden("models/") + model;
    for (const auto& entry : std::filesystem::directory_iterator(from))
      if (entry.path().filename() != "config.json" && entry.path().extension() != ".gguf")
        std::filesystem::create_symlink(std::filesystem::absolute(entry.path()),
                                        temp / entry.path().filename().string());
    config = json::parse(read_file(from + "/config.json"));
    tokens = json::parse(read_file(from + "/golden.json"))["tokens"].get<std::vector<TokenId>>();
  }

  // Writes config.json with this change. A change without a value removes the key.
  void write(const json& change) const {
    json changed = config, *at = &changed;
    std::string path = change.value("key", "");
    for (size_t dot; (dot = path.find('.')) != path.npos; path = path.substr(dot + 1))
      at = &(*at)[path.substr(0, dot)];
    if (change.contains("value"))
      (*at)[path] = change["value"];
    else if (change.contains("key"))
      at->erase(path);
    std::ofstream(temp / "config.json") << changed;
  }

  ModelSource source() const { return import_model(temp.path); }
  // What an import read: metadata and the tensors' names.
  static std::string facts(const ModelSource& source) {
    std::string all = describe(source.meta);
    for (const auto& t : source.tensors) all += " " + t.info.name;
    return all;
  }
  static std::string describe(const Metadata& meta) {
    std::string all;
    for (const auto& [key, value] : meta.all()) {
      all += key + "=";
      std::visit([&](const auto& x) { all += text(x); }, value.data);
      all += ";";
    }
    return all;
  }
  static std::string text(const std::string& x) { return x; }
  template <class T>
  static std::string text(const T& x) {
    if constexpr (std::is_arithmetic_v<T>) {
      return fmt::format("{}", x);
    } else {
      std::string all;
      for (const auto& item : x) all += fmt::format("{},", item);
      return all;
    }
  }

  // The last logits. The context is the sequence, as in transformers.
  std::vector<float> logits(ModelSource source) const {
    EngineOptions o;
    o.model = temp.path, o.kv = Format::f32, o.context = int(tokens.size());
    o.threads = 1;  // the cases run side by side
    const auto engine = Engine::open({std::move(source), nullptr, false}, o);
    const auto session = engine->session();
    const auto last = session->extend(tokens, 1);
    return {last.begin(), last.end()};
  }
};

// The message names the key, or the tensor or our own key with which it is in conflict.
bool names_key(std::string message, const std::string& key) {
  // The name of a file is no key.
  for (const std::string file = "model.safetensors"; contains(message, file);)
    message.erase(message.find(file), file.size());
  // Two names of one object.
  if (key == "rope_scaling" && contains(message, "rope_parameters.")) return true;
  if (key.ends_with(".xdrope_section") && contains(message, ".mrope_section ")) return true;
  // Without it the keys of the text part are expected at the top.
  if (key == "text_config" && contains(message, " is missing, ")) return true;
  return contains(message, key.substr(key.rfind('.') + 1)) || contains(message, "tensor ") ||
         contains(message, "model.") || contains(message, "layer_types");
}

// Changes that transformers refuses and chaski may read, each with the reason.
bool may_be_read(const std::string& model, const json& config, const json& change) {
  std::string key = change["key"];
  const auto is_of = [](const std::string& name, std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  // The text part has its own keys.
  const std::string text = "text_config.";
  if (config.contains("text_config") && !key.starts_with(text)) return true;
  if (key.starts_with(text)) key.erase(0, text.size());
  // Formats are those of the tensors; experts' noise is for training.
  if (key == "dtype" || key == "torch_dtype" || key == "return_dict" ||
      key.ends_with("moe_jitter_eps"))
    return true;
  // Too few layers in a list in which all layers are the same.
  if ((model == "hunyuan_moe" && is_of(key, {"moe_topk", "num_experts_per_tok"})) ||
      (model == "mellum" && key == "mlp_layer_types"))
    return true;
  // There is no value to ignore: a default is used.
  if (!change.contains("value") || change["value"].is_null()) return true;
  // Token ids, heads of classifiers, and experts that enable_moe_block switches off.
  if (is_of(key, {"pad_token_id", "summary_activation", "summary_type", "num_experts",
                  "top_k_experts", "moe_intermediate_size"}))
    return true;
  // The order of multiplications in 16 bits.
  if (key == "reorder_and_upcast_attn") return true;
  // Not a number of tokens, but use_sliding_window is false.
  if (key == "sliding_window" && is_of(model, {"qwen2", "qwen3", "qwen3moe", "smollm3"}))
    return true;
  // Here 0 means no window; transformers computes no numbers with it.
  if (is_of(key, {"sliding_window", "sliding_window_pattern", "attention_chunk_size"}) &&
      change["value"] == 0)
    return true;
  // Blocks of tokens that transformers computes at once.
  if (is_of(key, {"chunk_size", "mamba_chunk_size", "block_size"})) return true;
  // Sections of positions change nothing in a text.
  if (key.ends_with("mrope_section")) return true;
  // A key of its class that no layer reads.
  if (key == "sliding_window" && model.starts_with("nemotron_h")) return true;
  // Layers that predict further tokens are not read.
  if (is_of(key, {"num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types",
                  "mtp_hybrid_override_pattern", "num_mtp_layers"}))
    return true;
  // How transformers computes, not what.
  if (key == "use_falcon_mambapy") return true;
  // Numbers with which a training begins, and a width that follows from other keys.
  if (is_of(key, {"mamba_dt_max", "mamba_dt_init_floor", "mamba_expand"})) return true;
  // transformers wants 3.0.
  if (key.ends_with("_softcapping") && change["value"].is_number_integer()) return true;
  // With this class's head_dim of null, transformers fails at yarn and dynamic scaling.
  if (model == "mixtral" && is_of(key, {"rope_parameters", "rope_scaling"})) return true;
  // Its class has this key but does not read it.
  if (key == "attn_logit_softcapping" && model == "gemma3") return true;
  // Too few or too many layers, or no list, and all attend to everything, as without the key.
  if (key == "layer_types" && change["value"].dump().find("sliding") == std::string::npos)
    return is_of(model, {"qwen2", "qwen2moe", "qwen3", "smollm3", "exaone4_plain", "dots1",
                         "deepseek_v32", "glm_dsa", "mistral3"});
  return false;
}

// Values of another meaning.
std::vector<json> other_values(const json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_number_integer()) return {value.get<int>() + 1, value.get<int>() * 2};
  if (value.is_number()) return {value.get<double>() * 1.5 + 0.1};
  if (value.is_string()) return {value.get<std::string>() + "_other"};
  if (value.is_null()) return {3, true};
  return {json::array()};
}

// Keys of models that transformers has no class for and that their own code does not read when it
// computes logits.
bool is_not_read(const std::string& key) {
  static const std::set<std::string> names{
      // types and token ids, for loading and for the tokenizer
      "model_type", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id",
      // a stored head is used, whatever this says
      "tie_word_embeddings",
      // how many tokens PLaMo 2's kernels compute at once
      "mamba_chunk_size"};
  return names.count(key) > 0;
}

// The changes of a model, each with what transformers makes of it: "refused" or a row of logits.
std::vector<std::pair<json, std::string>> changes_of(const json& model, const json& shared) {
  std::vector<std::pair<json, std::string>> list;
  for (const auto& [key, outcomes] : model["keys"].items())
    for (const auto& [outcome, values] : outcomes.items())
      for (const json& value : values) {
        json change{{"key", key}, {"value", value}};
        if (value == "(removed)")
          change.erase("value");
        else if (value.is_string() && value.get<std::string>().starts_with("#"))
          change["value"] = shared[std::stoul(value.get<std::string>().substr(1))];
        list.emplace_back(change, outcome);
      }
  return list;
}

// transformers computes MPT with a maximum of 8, whatever config.json says. The authors' code reads
// it, and so does llama.cpp; MPT-7B-StoryWriter has 16.
// It computes DBRX with a theta of 10000 if rope_parameters has none. The authors' code and
// llama.cpp read that of attn_config.
// If Mamba's rescale_prenorm_residual is true, it divides weights that it has loaded, as before a
// training. The authors' code does so only with random weights.
bool is_of_authors(const std::string& model, const json& change) {
  const std::string key = change["key"];
  const json value = change.value("value", json());
  const bool no_theta =
      key == "rope_parameters.rope_theta" || ((key == "rope_parameters" || key == "rope_scaling") &&
                                              !(value.is_object() && value.contains("rope_theta")));
  return (model == "mpt" && key == "attn_config.alibi_bias_max") || (model == "dbrx" && no_theta) ||
         key == "rescale_prenorm_residual";
}

// As golden_mutations.py says it.
std::string why_not_opened(const std::string& model) {
  const std::string config = golden("models/") + model + "/config.json";
  if (!std::filesystem::exists(config)) return "a GGUF file only";
  return "transformers has no class for the model_type " +
         json::parse(read_file(config))["model_type"].get<std::string>();
}

}  // namespace

TEST_CASE("import/config.json: every golden folder is in the sweep, or has a reason not to be") {
  const json file = json::parse(read_file(golden("mutations.json")));
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(golden("models")))
    if (entry.is_directory()) folders.insert(entry.path().filename().string());
  std::set<std::string> listed;
  for (const auto& part : {file["models"], file["not_opened"]})
    for (const auto& [model, _] : part.items()) CHECK_MESSAGE(listed.insert(model).second, model);
  CHECK_MESSAGE(listed == folders,
                "expected scripts/golden/golden_mutations.py to have been run for new models");
  for (const auto& [model, reason] : file["not_opened"].items())
    CHECK_MESSAGE(reason.get<std::string>() == why_not_opened(model), model);
}

TEST_CASE("import/config.json of models without a class in transformers: no key is ignored") {
  const json file = json::parse(read_file(golden("mutations.json")));
  for (const auto& [model, reason] : file["not_opened"].items()) {
    if (!std::filesystem::exists(golden("models/") + model + "/config.json")) continue;
    const Folder folder(model);
    folder.write(json::object());
    const std::string base = Folder::facts(folder.source());
    for (const auto& [key, value] : folder.config.items())
      for (const json& other : other_values(value)) {
        if (is_not_read(key) || other == value) continue;
        const json change{{"key", key}, {"value", other}};
        INFO(model << " " << change.dump());
        folder.write(change);
        std::string found, why;
        try {
          found = Folder::facts(folder.source());
        } catch (const Error& e) {
          why = e.what();
        }
        CHECK_MESSAGE((why.empty() ? found != base : names_key(why, key)), why);
      }
  }
}

namespace {

// The cases share the models of mutations.json, so that they run side by side: this one takes every
// kMutationCases-th model from `first` on. CHASKI_MUTATIONS limits them to one model.
constexpr int kMutationCases = 4;
void expect_no_key_ignored(int first) {
  const json file = json::parse(read_file(golden("mutations.json")));
  const char* only = std::getenv("CHASKI_MUTATIONS");
  int n = 0, refused = 0, at = 0;
  for (const auto& [model, m] : file["models"].items()) {
    if (at++ % kMutationCases != first || (only && model != only)) continue;
    const Folder folder(model);
    folder.write(json::object());
    const std::string base = Folder::facts(folder.source());
    // What was read, and its logits. If an import depended on a key in another way, the logits of
    // that change would differ from transformers' row.
    std::map<std::string, std::vector<float>> known;
    double most = 0;
    for (double x : m["rows"][0]) most = std::max(most, std::fabs(x));
    for (const auto& [change, outcome] : changes_of(m, file["values"])) {
      ++n;
      INFO(model << " " << change.dump() << " in transformers: " << outcome);
      folder.write(change);
      std::string why;
      std::vector<float> found;
      try {
        ModelSource source = folder.source();
        const std::string facts = Folder::facts(source);
        if (outcome == "0" && facts == base) continue;
        const auto at = known.find(facts);
        found = at != known.end() ? at->second : known[facts] = folder.logits(std::move(source));
      } catch (const Error& e) {
        why = e.what();
      }
      if (!why.empty()) {
        ++refused;
        CHECK_MESSAGE(names_key(why, change["key"]), why);
        CHECK(change["key"] != "unheard_of");
        continue;
      }
      if (outcome == "refused") {
        CHECK_MESSAGE(may_be_read(model, folder.config, change), "it is read here");
        continue;
      }
      double worst = 0;
      for (size_t i = 0; i < m["places"].size(); ++i)
        worst = std::max(worst, std::fabs(found[m["places"][i].get<size_t>()] -
                                          m["rows"][std::stoul(outcome)][i].get<double>()));
      CHECK_MESSAGE((worst <= 2e-4 * most || is_of_authors(model, change)),
                    "differs by " << worst / most);
    }
  }
  MESSAGE(n << " changes, " << refused << " of them refused");
  if (!only) CHECK(n > 13000 / kMutationCases);
}

}  // namespace

TEST_CASE("import/config.json: no key is ignored, models 1, 5, ...") { expect_no_key_ignored(0); }
TEST_CASE("import/config.json: no key is ignored, models 2, 6, ...") { expect_no_key_ignored(1); }
TEST_CASE("import/config.json: no key is ignored, models 3, 7, ...") { expect_no_key_ignored(2); }
TEST_CASE("import/config.json: no key is ignored, models 4, 8, ...") { expect_no_key_ignored(3); }
