// MiniMax-Text-01 and MiniMax-M1 (MiniMax 2025, arXiv 2501.08313): lightning attention
// (ops/state_scan.h), soft-max attention in some layers, and experts in all. Each part adds its
// result to its normed input times alpha; the sum is the next part's input.
#include "models/blocks/minimax.h"

namespace chaski {

namespace {

class MiniMax01 : public MiniMax {
 public:
  void keys(Keys& k) override {
    size_keys(k);
    rotary_keys(k, false);
    k["rope_theta"].hf_otherwise(1e6);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    lightning_norm_keys(k);
    expert_keys(k, {"num_local_experts", "num_experts"});
    k["expert_count"].hf_otherwise(int64_t{8});
    k["expert_used_count"].hf_otherwise(int64_t{2});
    kind_keys(k);
    alpha_keys(k);
    for (const char* key : {"sliding_window", "shared_intermediate_size"})
      k.hf_expects({key}, {int64_t{0}});
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"postnorm"}, {true});
  }

  void tensors(Slots& s) override {
    lightnings.resize(size_t(n_layers));
    Experts::tensors(s);
  }

  void agree(const std::string& file) const override {
    Experts::agree(file);
    for (const auto& [name, factor] :
         {std::pair("linear_attn_alpha_factor", linear_alpha), {"mlp_alpha_factor", mlp_alpha}})
      if (factor != alpha)
        fail(Exit::bad_file, "{}: model.{} is {}, expected full_attn_alpha_factor, {}", file, name,
             factor, alpha);
  }

  void bound(const std::string& file) override {
    Experts::bound(file);
    decays.clear();
    for (int64_t i = 0; i < n_layers; ++i) {
      // The decays of Press et al. (2022), smaller from layer to layer.
      const double factor = 1 - double(i) / (double(n_layers) - 1 + 1e-5) + 1e-5;
      std::vector<float>& all = decays.emplace_back();
      for (int head = 1; head <= heads; ++head)
        all.push_back(float(-factor * std::exp2(-8.0 * head / heads)));
      lightnings[size_t(i)].decays = {{fmt::format("layer.{}.decays", i), Format::f32, 1, heads},
                                      reinterpret_cast<const std::byte*>(all.data())};
    }
  }

  void build(Graph& g) const override {
    ValueId x = embedding(g);
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto added = [&](ValueId n, ValueId y) { return g.add(g.scale(n, alpha), y); };
      const ValueId n = rms_norm(g, x, layers[i].attn_norm);
      x = added(n, attend(g, n, i));
      const ValueId m = rms_norm(g, x, layers[i].ffn_norm);
      x = added(m, feed(g, m, i));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }

 private:
  struct Lightning {
    Linear qkv, gate, norm, out;
    Weight decays;
  };
  std::vector<Lightning> lightnings;
  std::vector<std::vector<float>> decays;  // by layer and head
  // 1 for each layer with soft-max attention, and for each with lightning attention.
  std::vector<int64_t> soft, recurrent;
  int64_t interval = 8;
  // The factor of the normed input. config.json has one for each kind of part.
  float alpha = 1, linear_alpha = 1, mlp_alpha = 1;
  float lightning_eps = 0;  // of the norm of lightning attention's result
  bool own_eps = false;     // it differs from that of the other norms

  void kind_keys(Keys& k) {
    k.integer(interval, "full_attention_interval").not_in_hf().range(1, 4096).otherwise(int64_t{8});
    k.flags(soft, "attention_layers", n_layers)
        .not_in_gguf()
        .in_hf({"layer_types", "attn_type_list"})
        .hf_word("full_attention", "1")
        .hf_word("linear_attention", "0")
        .hf_word("1", "1")
        .hf_word("0", "0")
        .hf_otherwise([this] {
          std::vector<int64_t> list;
          for (int64_t i = 0; i < n_layers; ++i) list.push_back(i % 2 == 0);
          return Given(list);
        })
        .optional();
    k.flags(recurrent, "recurrent_layers", n_layers)
        .in_gguf("attention.recurrent_layers")
        .not_in_hf()
        .otherwise([this] {
          std::vector<int64_t> list;
          for (int64_t i = 0; i < n_layers; ++i)
            list.push_back(soft.empty() ? (i + 1) % interval != 0 : !soft[size_t(i)]);
          return Given(list);
        });
  }
  // transformers always takes 1e-6, llama.cpp the epsilon of the other norms.
  void lightning_norm_keys(Keys& k) {
    k.number(lightning_eps, "lightning_norm_epsilon")
        .not_in_gguf()
        .not_in_hf()
        .gguf_otherwise([this] { return double(eps); })
        .otherwise(1e-6)
        .positive();
    k.flag(own_eps, "lightning_own_epsilon").in_gguf_always(0).not_in_hf().otherwise([this] {
      return lightning_eps != eps;
    });
  }
  // One factor for all inputs, and none for the results.
  void alpha_keys(Keys& k) {
    k.number(alpha, "residual_scale")
        .in_hf({"full_attn_alpha_factor", "layernorm_full_attention_alpha"})
        .hf_otherwise(1.0)
        .positive();
    const auto same = [&](float& factor, const char* name, const char* older) {
      k.number(factor, name).not_in_gguf().in_hf({name, older}).hf_otherwise(1.0).otherwise([this] {
        return double(alpha);
      });
    };
    same(linear_alpha, "linear_attn_alpha_factor", "layernorm_linear_attention_alpha");
    same(mlp_alpha, "mlp_alpha_factor", "layernorm_mlp_alpha");
    for (const char* part : {"full_attn", "linear_attn", "mlp"})
      k.hf_expects({std::string(part) + "_beta_factor"}, {1.0});
    for (const char* part : {"full_attention", "linear_attention", "mlp"})
      k.hf_expects({"layernorm_" + std::string(part) + "_beta"}, {1.0});
  }

  void attend_slots(Slots& s, int64_t i) override {
    if (!recurrent[size_t(i)]) return Experts::attend_slots(s, i);
    Lightning& w = lightnings[size_t(i)];
    s.add(w.qkv, "attn_qkv", 3 * q_rows(), dim).in_hf("self_attn.qkv_proj");
    s.add(w.gate, "attn_gate", q_rows(), dim).in_hf("self_attn.output_gate");
    s.add(w.norm, "attn_norm_2", 1, q_rows()).in_hf("self_attn.norm");
    s.add(w.out, "attn_output", dim, q_rows()).in_hf("self_attn.out_proj");
  }
  ValueId attend(Graph& g, ValueId n, size_t i) const override {
    if (!recurrent[i]) return Experts::attend(g, n, i);
    const Lightning& w = lightnings[i];
    const ValueId y = g.state_scan(g.silu(linear(g, n, w.qkv)),
                                   StateScan{0, heads, head_dim, heads, head_dim}, w.decays);
    const ValueId gate = g.activate(Activation::sigmoid, linear(g, n, w.gate));
    return linear(g, g.mul(gate, g.rms_norm(y, *w.norm.weight, lightning_eps)), w.out);
  }
};

}  // namespace

extern const Architecture kMiniMax01;
const Architecture kMiniMax01{
    "minimax-01",
    {"MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"},
    make_model<MiniMax01>};

}  // namespace chaski
