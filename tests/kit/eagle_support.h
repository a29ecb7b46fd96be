// Writes folders of EAGLE heads with random weights, reads the golden ones, and records drafts.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/drafting/draft_eagle.h"
#include "engine/drafting/drafter.h"
#include "engine/session/pass.h"
#include "models/import/hf/heads.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/import_support.h"

namespace chaski::test {

inline const std::string kEagleTarget = golden("models/llama_gqa_untied"),
                         kEagle3Target = golden("heads/eagle3_target"),
                         kNextTarget = golden("heads/mimo");

inline nlohmann::json golden_numbers(const std::string& folder) {
  return nlohmann::json::parse(read_file(folder + "/golden.json"));
}

// The hidden rows of the target for these tokens, which a head reads.
inline std::vector<float> rows_of(const std::shared_ptr<Engine>& target,
                                  std::span<const TokenId> tokens) {
  const auto session = target->session();
  const Extension all{.session = session.get(), .tokens = tokens, .wanted = 0, .hidden = true};
  return draw_all({&all, 1})[0].hidden;
}

struct EagleTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::function<float(int64_t)> value;
  bool integers = false;
};

inline void write_tensors(const std::string& path, const std::vector<EagleTensor>& tensors) {
  std::string header, data;
  for (const EagleTensor& t : tensors) {
    int64_t n = 1;
    std::string shape;
    for (const int64_t d : t.shape)
      n *= d, shape += fmt::format("{}{}", shape.empty() ? "" : ",", d);
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "{" : ",", t.name, t.integers ? "I64" : "F32", shape,
                          data.size(), data.size() + size_t(n) * (t.integers ? 8 : 4));
    for (int64_t i = 0; i < n; ++i)
      t.integers ? append(data, int64_t(t.value(i))) : append(data, t.value(i));
  }
  write_file(path, safetensors(header + "}", data));
}

inline const std::string kConfig = "/config.json", kWeights = "/model.safetensors";
constexpr HeadsKind kEveryKind[] = {HeadsKind::eagle1, HeadsKind::eagle3, HeadsKind::next_layer};

// A head of one layer with random weights. Its output rows are about its input rows times `scale`.
struct WrittenHead {
  HeadsKind kind = HeadsKind::eagle1;
  float scale = 1;
  std::vector<float> bias = {};     // added to each output row; not for EAGLE-3
  std::vector<TokenId> known = {};  // the tokens of an EAGLE-3 head; empty: every third token
  int64_t heads = 2, kv_heads = 1, ffn = 32;
};

inline void write_head(const std::string& folder, const Engine& target, WrittenHead head = {}) {
  const int64_t d = target.hidden_size(), ffn = head.ffn, q = 32 * head.heads,
                kv = 32 * head.kv_heads, vocab = target.vocab_size();
  const bool three = head.kind == HeadsKind::eagle3, next = head.kind == HeadsKind::next_layer;
  if (head.known.empty())
    for (TokenId t = 0; t < vocab / 3 * 3; t += 3) head.known.push_back(t);
  const int64_t known = int64_t(head.known.size());
  write_file(
      folder + kConfig,
      fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "hidden_size": {}, )"
                  R"("intermediate_size": {}, "num_hidden_layers": 1, "head_dim": 32, )"
                  R"("num_attention_heads": {}, "num_key_value_heads": {}, "vocab_size": {}, )"
                  R"("max_position_embeddings": 64, "rms_norm_eps": 1e-5{}}})",
                  d, ffn, head.heads, head.kv_heads, vocab,
                  three  ? fmt::format(R"(, "draft_vocab_size": {}, )"
                                        R"("eagle_aux_hidden_state_layer_ids": [1, 3, 5])",
                                       known)
                  : next ? R"(, "num_nextn_predict_layers": 1)"
                         : ""));
  std::mt19937 random(7);
  const auto some = [&](float size) {
    return [&random, size](int64_t) { return size * (float(random() % 2001) / 1000 - 1); };
  };
  const auto one = [](int64_t) { return 1.0f; };
  // EAGLE-1 and EAGLE-3 concatenate token and row with the row last, a next layer with the row
  // first.
  const int64_t width = three ? 3 * d : 2 * d, at = next ? 0 : width - d;
  const std::string layer = next ? "model.mtp_layers.0." : three ? "midlayer." : "layers.0.";
  const int64_t seen = three ? 2 * d : d;  // columns of the input of attention
  std::vector<EagleTensor> tensors{{next ? layer + "input_proj.weight" : "fc.weight",
                                    {d, width},
                                    [&, noise = some(0.05f)](int64_t i) {
                                      return noise(i) +
                                             (i % width == at + i / width ? head.scale : 0.0f);
                                    }}};
  if (!head.bias.empty())
    tensors.push_back({next ? layer + "mlp.down_proj.bias" : "fc.bias", {d}, [&](int64_t i) {
                         return head.bias[size_t(i)];
                       }});
  tensors.push_back({layer + "self_attn.q_proj.weight", {q, seen}, some(0.3f)});
  tensors.push_back({layer + "self_attn.k_proj.weight", {kv, seen}, some(0.3f)});
  tensors.push_back({layer + "self_attn.v_proj.weight", {kv, seen}, some(0.3f)});
  tensors.push_back({layer + "self_attn.o_proj.weight", {d, q}, some(0.1f)});
  tensors.push_back({layer + "mlp.gate_proj.weight", {ffn, d}, some(0.1f)});
  tensors.push_back({layer + "mlp.up_proj.weight", {ffn, d}, some(0.1f)});
  tensors.push_back({layer + "mlp.down_proj.weight", {d, ffn}, some(0.1f)});
  tensors.push_back({layer + "post_attention_layernorm.weight", {d}, one});
  if (three || next) tensors.push_back({layer + "input_layernorm.weight", {d}, one});
  if (next)
    for (const char* norm : {"token_layernorm", "hidden_layernorm", "final_layernorm"})
      tensors.push_back({layer + norm + ".weight", {d}, one});
  if (three) {
    tensors.push_back({layer + "hidden_norm.weight", {d}, one});
    tensors.push_back({"norm.weight", {d}, one});
    tensors.push_back({"lm_head.weight", {known, d}, some(0.2f)});
    tensors.push_back(
        {"d2t", {known}, [&](int64_t i) { return float(head.known[size_t(i)] - i); }, true});
  }
  write_tensors(folder + kWeights, tensors);
}

// Records the drafts of a drafter, with the text before each.
struct Noted : Drafter {
  explicit Noted(std::unique_ptr<Drafter> of) : drafter(std::move(of)) {}
  bool reads_hidden() const override { return true; }
  int first_guesses() const override { return drafter->first_guesses(); }
  void read_hidden(std::span<const TokenId> text, std::span<const float> rows) override {
    drafter->read_hidden(text, rows);
  }
  int kind(std::span<const TokenId> text) override { return drafter->kind(text); }
  Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) override {
    Draft draft = drafter->propose(history, shape);
    notes.push_back({{history.begin(), history.end()}, draft});
    return draft;
  }
  std::unique_ptr<Drafter> drafter;
  std::vector<std::pair<std::vector<TokenId>, Draft>> notes;
};

// The draft after a text whose rows a new drafter reads all at once.
inline Draft drafted_from_scratch(const std::shared_ptr<Engine>& eagle,
                                  const std::shared_ptr<Engine>& target,
                                  const SamplerOptions& sampling, const std::vector<TokenId>& text,
                                  const Draft::Shape& shape) {
  const auto drafter = eagle_drafter(eagle, sampling);
  drafter->read_hidden(text, rows_of(target, std::span(text).first(text.size() - 1)));
  return drafter->propose(text, shape);
}

}  // namespace chaski::test
