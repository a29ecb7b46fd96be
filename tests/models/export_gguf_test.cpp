// What an exported GGUF file says to other readers. scripts/check/check_gguf.py compares the logits
// of llama.cpp.
#include <cmath>
#include <cstring>

#include "ggml-like-tensor/rope_spec.h"
#include "tests/kit/import_support.h"

namespace chaski::test {
namespace {

// The keys of a golden folder's export, after `change` of its metadata.
struct Exported {
  TempFolder temp;
  GgufFile file;
  std::string bytes;

  explicit Exported(
      const std::string& model, const std::function<void(Metadata&)>& change = [](Metadata&) {}) {
    ModelSource source = import_model(golden("models/") + model);
    change(source.meta);
    export_gguf(path(), source);
    file = read_gguf(path());
    bytes = read_file(path());
  }
  std::string path() const { return temp / "model.gguf"; }
  bool has(const std::string& key) const { return file.values.count(key) > 0; }
  int64_t integer(const std::string& key) const {
    return std::get<int64_t>(file.values.at(key).data);
  }
  double number(const std::string& key) const { return std::get<double>(file.values.at(key).data); }
  // The number of dimensions that the file gives to a tensor.
  int dimensions(const std::string& tensor) const {
    std::string name;
    append_text(name, tensor);
    const size_t at = bytes.find(name);
    REQUIRE(at != bytes.npos);
    return bytes[at + name.size()];
  }
};

std::string refusal(const std::string& model, const std::function<void(Metadata&)>& change) {
  return error_of([&] { Exported(model, change); }).what();
}

}  // namespace

TEST_CASE("export/gguf says how wide values are where readers would assume another width") {
  CHECK(Exported("qwen3").integer("qwen3.attention.value_length") == 16);
  CHECK(Exported("llama_few_heads").integer("llama.attention.value_length") == 16);
  CHECK_FALSE(Exported("llama_gqa_untied").has("llama.attention.value_length"));
  const Exported gemma4("gemma4");
  CHECK(gemma4.integer("gemma4.attention.value_length") == 16);
  CHECK(gemma4.integer("gemma4.attention.value_length_swa") == 8);
}

TEST_CASE("export/gguf of scaled rotary positions") {
  const Exported longrope("phi3_longrope");
  CHECK_FALSE(longrope.has("phi3.rope.scaling.factor"));
  CHECK(longrope.number("phi3.rope.scaling.attn_factor") ==
        doctest::Approx(std::sqrt(1 + std::log(4.0) / std::log(32.0))));

  // yarn's own factor is 1 + 0.1 ln 4, to which a reader multiplies attn_factor
  const std::string factor = "llama.rope.scaling.attn_factor";
  CHECK_FALSE(Exported("llama_rope_yarn").has(factor));
  const double longer = std::log(4.0);
  const Exported yarn("llama_rope_yarn", [](Metadata& meta) {
    meta.set_float("model.rope_mscale", 0.7), meta.set_float("model.rope_mscale_all_dim", 0.4);
  });
  CHECK(yarn.number(factor) ==
        doctest::Approx((1 + 0.07 * longer) / (1 + 0.04 * longer) / (1 + 0.1 * longer)));
  CHECK(import_model(yarn.path()).meta.number("model.rope_attention_factor") ==
        doctest::Approx((1 + 0.07 * longer) / (1 + 0.04 * longer)));
  // Ministral has a key for mscale_all_dim, and readers assume 1 for mscale
  const std::string theirs = "mistral3.rope.scaling.attn_factor";
  CHECK_FALSE(Exported("mistral3").has(theirs));
  const Exported other("mistral3",
                       [](Metadata& meta) { meta.set_float("model.rope_mscale", 0.5); });
  CHECK(other.number(theirs) == doctest::Approx((1 + 0.05 * longer) / (1 + 0.1 * longer)));
  CHECK(import_model(other.path()).meta.number("model.rope_attention_factor") ==
        doctest::Approx((1 + 0.05 * longer) / (1 + 0.1 * longer)));

  CHECK(contains(refusal("llama_rope_yarn",
                         [](Metadata& meta) { meta.set_bool("model.rope_truncate", false); }),
                 ": model.rope_truncate is false, which GGUF cannot store: its llama models have "
                 "true"));

  // up to the file's context dynamic changes nothing
  const Exported dynamic("llama_rope_dynamic");
  CHECK_FALSE(dynamic.has("llama.rope.scaling.type"));
  CHECK_FALSE(dynamic.has("llama.rope.scaling.factor"));
  const Metadata back = import_model(dynamic.path()).meta;
  CHECK(back.str("model.rope_scaling") == "dynamic");
  CHECK(back.number("model.rope_factor") == 2);
  CHECK(contains(refusal("llama_rope_dynamic",
                         [](Metadata& meta) { meta.set_int("model.rope_original_context", 16); }),
                 "model.rope_original_context is 16, which GGUF cannot store for dynamic scaling"));
}

TEST_CASE("import/gguf: all layers of a llama4 file without blocks have rotary positions") {
  const TempFolder temp;
  std::string file = read_file(golden("models/llama4/model.gguf"));
  const auto turned = [&] {
    return import_gguf(write_file(temp / "model.gguf", file)).meta.ints("model.rope_layers");
  };
  CHECK(turned() == std::vector<int64_t>{1, 1, 1, 0});
  const std::string key = "llama4.attention.sliding_window";
  file[file.find(key) + key.size() + 4] = 0;  // after the type
  CHECK(turned() == std::vector<int64_t>{1, 1, 1, 1});
}

TEST_CASE("import/gguf: readers know one epsilon for the norm of RWKV's heads") {
  const TempFolder temp;
  std::string file = read_file(golden("models/rwkv7/model.gguf"));
  const std::string key = "rwkv7.attention.layer_norm_epsilon";
  const float other = 1e-3f;
  std::memcpy(&file[file.find(key) + key.size() + 4], &other, sizeof other);  // after the type
  const Metadata meta = import_model(write_file(temp / "model.gguf", file)).meta;
  CHECK(meta.number("model.norm_epsilon") == doctest::Approx(1e-3));
  CHECK(meta.number("model.wkv.norm_epsilon") == doctest::Approx(64e-5));
}

TEST_CASE("export/gguf in the shapes and under the names of other readers") {
  const Exported gemma3n("gemma3n");
  CHECK(gemma3n.dimensions("altup_proj.weight") == 3);
  CHECK(gemma3n.dimensions("altup_unembd_proj.weight") == 3);
  CHECK(gemma3n.dimensions("token_embd.weight") == 2);
  CHECK(contains(refusal("gemma3n", [](Metadata& meta) { meta.set_int("model.laurel_rank", 32); }),
                 "model.laurel_rank is 32, which GGUF cannot store: its gemma3n models have 64"));
  // readers expect a head, although it is the token table
  const ModelSource codeshell = import_model(Exported("codeshell").path());
  CHECK(values_of(tensor(codeshell, "output")) == values_of(tensor(codeshell, "token_embd")));
  CHECK(Exported("bitnet").has("bitnet.hidden_act"));
  // RWKV 7's first layer has no values before it; llama.cpp expects their matrices all the same
  const Exported rwkv7("rwkv7");
  CHECK(rwkv7.dimensions("blk.0.time_mix_v0.weight") == 1);
  CHECK(rwkv7.dimensions("blk.0.time_mix_v1.weight") == 2);
  CHECK(rwkv7.dimensions("blk.0.time_mix_v2.weight") == 2);
  CHECK(rwkv7.dimensions("blk.0.time_mix_lerp_fused.weight") == 4);
  CHECK(rwkv7.dimensions("blk.0.time_mix_r_k.weight") == 1);
  CHECK(read_gguf(rwkv7.path()).tensors.size() ==
        read_gguf(golden("models/rwkv7/model.gguf")).tensors.size());
  // models with experts have a name of their own
  CHECK(Exported("nemotron_h_moe").integer("nemotron_h_moe.expert_count") == 8);
  CHECK(Exported("nemotron_h_moe").has("nemotron_h_moe.attention.layer_norm_epsilon"));
  CHECK(Exported("nemotron_h").has("nemotron_h.block_count"));
  CHECK(Exported("ernie4_5_moe").integer("ernie4_5-moe.interleave_moe_layer_step") == 1);
  const auto unusual = [](const char* key) {
    return [key](Metadata& meta) { meta.set_bool(key, true); };
  };
  const std::string thinker = refusal("smallthinker", unusual("model.layers_are_unusual"));
  CHECK_MESSAGE(contains(thinker,
                         "model.layers_are_unusual is true, which GGUF cannot store: its "
                         "smallthinker models have false"),
                thinker);
  CHECK(contains(refusal("llama4", unusual("model.rope_layers_are_unusual")),
                 "model.rope_layers_are_unusual is true, which GGUF cannot store: its llama4 "
                 "models have false"));
  CHECK(contains(refusal("falcon_grouped", [](Metadata&) {}),
                 ".bias has no place in a GGUF file: its falcon models have none"));
}

}  // namespace chaski::test
