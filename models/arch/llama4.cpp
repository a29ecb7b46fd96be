// Llama 4 (Scout, Maverick), text: experts in some layers, next to a shared expert. Layers with
// rotary positions see blocks of cells only. The others see all cells, and their queries grow with
// the position.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Llama4 : public Experts {
 public:
  Llama4() {
    qkv_bias = Bias::none, half_split_in_hf = false, chunked = true;
    names = {"feed_forward.router", "feed_forward.experts.gate_up_proj",
             "feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj",
             "feed_forward.shared_expert"};
    gate_up_in_one = gate_up_transposed = down_transposed = bare_in_hf = true;
  }

  void keys(Keys& k) override {
    size_keys(k);
    k["feed_forward_length"].in_hf("intermediate_size_mlp");
    rope_keys(k);
    k["rope_theta"].hf_otherwise(500000.0);
    // The norms of heads come after the rotation and would remove yarn's factor on cos and sin.
    expect_scaling(k, {"default", "linear", "dynamic", "llama3"});
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    expert_keys(k, {"num_local_experts"});
    k["expert_used_count"].range(1, 1);  // its score is a factor of the expert's input
    expert_width_key(k);
    k["expert_feed_forward_length"].in_hf("intermediate_size");
    k.integer(every, "interleave_moe_layer_step")
        .in_hf("interleave_moe_layer_step")
        .range(1, 4096)
        .otherwise(int64_t{1});
    k.integer(window, "attention_chunk_size")
        .in_gguf("attention.sliding_window")
        .in_hf("attention_chunk_size")
        .hf_null_is(int64_t{0})
        .range(0, 1 << 30)
        .otherwise(int64_t{8192});
    // A GGUF file without blocks is of a model whose layers all have rotary positions.
    k.flags(turned, "rope_layers", n_layers)
        .not_in_gguf()
        .in_hf("no_rope_layers")
        .absent_if_empty_in_hf()
        .gguf_otherwise([this] { return Given(usual_turns()); })
        .otherwise([this] { return all_but_every(4); });
    k.flag(unusual, "rope_layers_are_unusual").in_gguf_always(0).not_in_hf().otherwise([this] {
      return turned != usual_turns();
    });
    k.flags(windowed, "window_layers", n_layers)
        .in_gguf("attention.sliding_window_pattern")
        .in_hf("layer_types")
        .hf_word("chunked_attention", "1")
        .hf_word("full_attention", "0")
        .or_one([this](int64_t n) { return Given(all_but_every(n)); })
        .otherwise([this] { return turned; });
    // GGUF files have no key for it. llama.cpp decides by the number of experts too.
    k.flag(normed, "head_norms").not_in_gguf().in_hf("use_qk_norm").otherwise([this] {
      return experts != 128;
    });
    k["head_norms"].hf_otherwise(true);
    k.flag(tuned, "attention_temperature_tuning")
        .in_gguf_always(true)
        .in_hf("attn_temperature_tuning")
        .otherwise(true);
    k.number(temperature, "attention_temperature")
        .in_gguf("attention.temperature_scale")
        .in_hf("attn_scale")
        .otherwise(0.1);
    k.integer(temperature_length, "attention_temperature_length")
        .in_gguf("attention.temperature_length")
        .in_hf("floor_scale")
        .range(1, 1 << 30)
        .otherwise(int64_t{8192});
    k.hf_expects({"no_rope_layer_interval"}, {4});
    k.hf_expects({"moe_layers"}, {with_experts()});
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"attention_bias"}, {false});
  }

  void bound(const std::string& file) override {
    Experts::bound(file);
    one_.assign(size_t(head_dim), 1.0f);
    ones_ = {{"ones_of_heads", Format::f32, 1, head_dim},
             reinterpret_cast<const std::byte*>(one_.data())};
    for (size_t i = 0; i < layers.size(); ++i)
      if (normed && turned[i]) layers[i].attn.q_norm.weight = layers[i].attn.k_norm.weight = &ones_;
  }

  void feed_slots(Slots& s, int64_t i) override {
    if (has_experts(i)) {
      shared_ffn = expert_ffn;
      return Experts::feed_slots(s, i);
    }
    gated_slots(s, layers[size_t(i)].ffn,
                {"feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"});
  }
  ValueId feed(Graph& g, ValueId n, size_t i) const override {
    if (!has_experts(int64_t(i))) return Llama::feed(g, n, i);
    const Mixture& m = mixtures[i];
    const Graph::Chosen c = g.top_k(linear(g, n, m.router), 1);
    const ValueId x = g.mix(n, g.activate(Activation::sigmoid, c.values));
    return g.add(consult(g, x, m, c.experts), shared(g, n, m));
  }

  // Layers without rotary positions have an angle of 0 in all pairs.
  bool turns(int layer) const override { return turned[size_t(layer)] || tuned; }
  RopeSpec rope_of(int layer) const override {
    if (turned[size_t(layer)]) return rope;
    RopeSpec still;
    still.dim = rope.dim, still.freq_factors.assign(size_t(rope.dim / 2), 1e30f);
    still.temperature = temperature, still.temperature_offset = 1;
    still.original_context = temperature_length;
    return still;
  }

 private:
  bool has_experts(int64_t layer) const override { return experts > 0 && (layer + 1) % every == 0; }
  std::vector<int64_t> with_experts() const {
    std::vector<int64_t> list;
    for (int64_t i = 0; i < n_layers; ++i)
      if (has_experts(i)) list.push_back(i);
    return list;
  }

  std::vector<int64_t> usual_turns() const { return all_but_every(window == 0 ? 0 : 4); }

  bool unusual = false;         // other layers turn than in GGUF files
  int64_t every = 1;            // layers from one with experts to the next
  std::vector<int64_t> turned;  // 1 for each layer with rotary positions, else 0
  bool normed = true, tuned = true;
  double temperature = 0;
  int64_t temperature_length = 1;
  std::vector<float> one_;
  Weight ones_;  // a view of it: heads are normed without a weight
};

}  // namespace

extern const Architecture kLlama4;
const Architecture kLlama4{"llama4", {"Llama4ForCausalLM"}, make_model<Llama4>, {"llama4_text"}};

}  // namespace chaski
