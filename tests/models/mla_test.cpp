// Latent attention: what is kept of a token, and files whose sizes do not fit together.
#include <nlohmann/json.hpp>

#include "engine/session/engine.h"
#include "engine/session/memory_need.h"
#include "models/import/import.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/import_support.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

using json = nlohmann::json;

std::string refusal(const char* model, const char* key, const json& value) {
  const TempFolder temp;
  json config = json::parse(read_file(golden("models/") + model + "/config.json"));
  config[key] = value;
  write_file(temp / "config.json", config.dump());
  std::filesystem::create_symlink(
      std::filesystem::absolute(golden("models/") + model + "/model.safetensors"),
      temp / "model.safetensors");
  return error_of([&] {
           EngineOptions o;
           o.model = temp.path;
           Engine::open(o);
         })
      .what();
}

}  // namespace

TEST_CASE("latent attention: a token keeps one row a layer for all heads") {
  const ModelSource source = import_model(golden("models/deepseek_v2_lite"));
  const auto bytes_a_token = [&](Format kv) { return state_bytes(source, kv)->per_1024 / 1024; };
  // 3 layers of 32 + 8 numbers. q8 has blocks of 32, with a scale of 2 bytes each.
  CHECK(bytes_a_token(Format::f32) == 3 * 40 * 4);
  CHECK(bytes_a_token(Format::f16) == 3 * 40 * 2);
  CHECK(bytes_a_token(Format::f8) == 3 * 40);
  CHECK(bytes_a_token(Format::q8) == 3 * 2 * 34);
  CHECK(bytes_a_token(Format::q4_0) == 3 * 2 * 18);
}

TEST_CASE("latent attention: an indexer keeps a key of each token in the layers that have one") {
  const auto bytes_a_token = [&](const char* model) {
    return state_bytes(import_model(golden("models/") + model), Format::f16)->per_1024 / 1024;
  };
  CHECK(bytes_a_token("deepseek_v32") == 3 * (40 + 32) * 2);
  CHECK(bytes_a_token("glm_dsa") == (3 * 40 + 2 * 32) * 2);  // its second layer has no indexer
}

TEST_CASE("latent attention: attention over few cells of many, and over all of them") {
  const TempFolder temp;
  // The logits of 60 tokens, each of which attends to `most` cells; 0: without an indexer.
  const auto logits_of = [&](int most, Format kv) {
    ModelSource source = import_model(golden("models/deepseek_v32"));
    if (most > 0) {
      source.meta.set_int("model.indexer_top_k", most);
    } else {
      source.meta.set_str("general.architecture", "deepseek2");
      std::erase_if(source.tensors, [](const TensorSource& t) {
        return t.info.name.find("indexer") != std::string::npos;
      });
    }
    write_quipu(temp / "model.quipu", source, 1);
    const auto e = open_on_cpu(temp / "model.quipu", kv);
    const auto tokens = tokens_for(*e, 60);
    const auto logits = e->session()->extend(tokens, int(tokens.size()));
    return std::vector<float>(logits.begin(), logits.end());
  };
  for (const KvType& kv : kKvTypes) {
    CAPTURE(kv.name);
    const std::vector<float> dense = logits_of(0, kv.format), few = logits_of(20, kv.format);
    CHECK(same(dense, logits_of(60, kv.format)));
    const size_t of_token = dense.size() / 60;
    CHECK(same(std::span(dense).first(20 * of_token), std::span(few).first(20 * of_token)));
    CHECK(!same(std::span(dense).last(of_token), std::span(few).last(of_token)));
  }
}

TEST_CASE("latent attention: matrices of keys are turned") {
  // The rows of K_h in a Hugging Face file are the columns of attn_k_b.
  const std::string folder = golden("models/deepseek_v3");
  const ModelSource ours = import_model(folder), theirs = import_model(folder + "/model.gguf");
  for (const char* name : {"layer.1.attn_k_b", "layer.1.attn_v_b"}) {
    const TensorSource *a = ours.find(name), *b = theirs.find(name);
    REQUIRE((a && b));
    REQUIRE(a->info.bytes() == b->info.bytes());
    std::vector<std::byte> in_ours(a->info.bytes()), in_theirs(in_ours.size());
    a->read(0, a->info.rows / kStrip, in_ours.data());
    b->read(0, b->info.rows / kStrip, in_theirs.data());
    CHECK(in_ours == in_theirs);
  }
}

TEST_CASE("latent attention: sizes that do not fit together are refused by name") {
  CHECK(contains(refusal("deepseek_v3", "kv_lora_rank", 24),
                 "model.latent_rank is 24, expected a multiple of 16"));
  CHECK(contains(refusal("deepseek_v3", "v_head_dim", 8),
                 "model.value_dim is 8, expected a multiple of 16"));
  CHECK(contains(refusal("deepseek_v32", "index_head_dim", 4),
                 "model.indexer_key_length is 4, expected at least rope_dim 8"));
  CHECK(contains(refusal("glm_dsa", "indexer_types", json{"shared", "full", "full"}),
                 "model.indexer_layers is 0 for layer 0, expected 1"));
  CHECK(contains(refusal("deepseek_v3", "num_key_value_heads", 2), "num_key_value_heads is 2"));
  CHECK(contains(refusal("deepseek_v3", "n_group", 3),
                 "model.expert_group_count is 3, expected groups of at least 2 of 8 experts"));
  CHECK(
      contains(refusal("deepseek_v3", "topk_group", 1),
               "model.expert_group_used_count is 1, expected at most 4, with at least 3 experts"));
}
