// RWKV 7 (Peng et al. 2025, arXiv 2503.14456): its state forgets by channel and replaces what it
// has for a key. Folders are those of flash-linear-attention.
#include "models/blocks/rwkv.h"

namespace chaski {

namespace {

class Rwkv7 : public Rwkv {
 public:
  void keys(Keys& k) override {
    layer_keys(k);
    const auto rank = [&](int64_t& member, const char* name, const char* in_hf) {
      k.integer(member, std::string("attention.") + name).in_hf(in_hf).range(2, 1 << 16);
    };
    rank(decay_rank, "decay_lora_rank", "decay_low_rank_dim");
    rank(rate_rank, "iclr_lora_rank", "a_low_rank_dim");
    rank(value_rank, "value_residual_mix_lora_rank", "v_low_rank_dim");
    rank(gate_rank, "gate_lora_rank", "gate_low_rank_dim");
    k.hf_expects({"hidden_act"}, {"sqrelu"});
    k.hf_expects({"norm_first"}, {true});
    k.hf_expects({"norm_bias"}, {true});
    k.hf_expects({"num_heads"}, {dim / std::max(1, head_dim)}, "hidden_size / head_dim, ");
  }

 private:
  struct More {
    Linear lerp[6];  // of r, w, k, v, a and g
    LowRank rate, value, gate;
    Linear key_scale, key_rate;
  };
  std::vector<More> more;
  int64_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;

  void tensors(Slots& s) override {
    more.resize(size_t(n_layers));
    const std::string name = "layer.0.time_mix_v";
    s.gguf_unused = {{name + "0", Format::f32, 1, dim},
                     {name + "1", Format::f32, rate_rank, dim},
                     {name + "2", Format::f32, dim, rate_rank}};
    Rwkv::tensors(s);
  }
  void time_slots(Slots& s, int64_t i) override {
    More& m = more[size_t(i)];
    TimeMix& w = layers[size_t(i)].time;
    for (int64_t part_of = 0; const char letter : std::string("rwkvag")) {
      s.add(m.lerp[part_of], std::string("time_mix_lerp_") + letter, 1, dim)
          .in_hf(std::string("attn.x_") + letter)
          .bare_in_hf()
          .in_gguf("time_mix_lerp_fused", part(part_of * dim, 6 * dim))
          .matrix_of(6)
          .shape_in_gguf({dim, 1, 1, 6});
      ++part_of;
    }
    const auto of = [&](LowRank& low, const std::string& letter, int64_t rank, bool adds) {
      const std::string name = "time_mix_" + letter;
      low_rank_slots(s, low, name + "1", name + "2", adds ? name + "0" : "", rank,
                     "attn." + letter + "_lora");
    };
    of(w.decay, "w", decay_rank, true);
    of(m.rate, "a", rate_rank, true);
    if (i > 0) of(m.value, "v", value_rank, true);
    of(m.gate, "g", gate_rank, false);
    s.add(m.key_scale, "time_mix_k_k", 1, dim).in_hf("attn.k_k").bare_in_hf();
    s.add(m.key_rate, "time_mix_k_a", 1, dim).in_hf("attn.k_a").bare_in_hf();
    s.add(w.bonus, "time_mix_r_k", 1, dim)
        .in_hf("attn.r_k")
        .bare_in_hf()
        .matrix_of(wkv_heads())
        .shape_in_gguf({dim});
  }

  ValueId time_mix(Graph& g, ValueId n, ValueId before, size_t i, ValueId& first) const override {
    const More& m = more[i];
    const TimeMix& t = layers[i].time;
    const auto mixed = [&](int part_of) { return lerp(g, n, before, m.lerp[part_of]); };
    const auto less = [&](ValueId x, ValueId y) { return g.add(x, g.scale(y, -1)); };
    const auto sigmoid = [&](ValueId x) { return g.activate(Activation::sigmoid, x); };
    const ValueId r = linear(g, mixed(0), t.r), xv = mixed(3);
    const ValueId down = g.activate(Activation::tanh, linear(g, mixed(1), t.decay.down)),
                  w = low_rank(g, down, t.decay);
    const ValueId key = linear(g, mixed(2), t.k);
    ValueId v = linear(g, xv, t.v);
    if (i == 0) {
      first = v;
    } else {
      const ValueId of_first = sigmoid(low_rank(g, linear(g, xv, m.value.down), m.value));
      v = g.add(v, g.mul(of_first, less(first, v)));
    }
    const ValueId rate = sigmoid(low_rank(g, linear(g, mixed(4), m.rate.down), m.rate));
    const ValueId gate = linear(g, sigmoid(linear(g, mixed(5), m.gate.down)), m.gate.up);
    const ValueId k = g.add(key, g.mul(less(g.mul(key, rate), key), *m.key_rate.weight));
    const Graph::Recalled y =
        g.wkv7({r, k, v, w, g.mul(key, *m.key_scale.weight), rate}, wkv(), *t.bonus.weight);
    return linear(g, g.mul(g.add(head_norm(g, y.y, t.norm), y.bonus), gate), t.output);
  }
};

}  // namespace

extern const Architecture kRwkv7;
const Architecture kRwkv7{"rwkv7", {"RWKV7ForCausalLM", "Rwkv7ForCausalLM"}, make_model<Rwkv7>};

}  // namespace chaski
