// RWKV 6 (Peng et al. 2024, arXiv 2404.05892), from GGUF files.
#include "models/blocks/rwkv.h"

namespace chaski {

namespace {

class Rwkv6 : public Rwkv {
 public:
  void keys(Keys& k) override {
    layer_keys(k);
    k.integer(mix_rank, "time_mix_extra_dim").not_in_hf().range(2, 1 << 16);
    k.integer(decay_rank, "time_decay_extra_dim").not_in_hf().range(2, 1 << 16);
    k.integer(period, "rescale_every_n_layers").not_in_hf().range(0, 4096).otherwise(int64_t{0});
  }

 private:
  static constexpr int kParts = 5;
  struct More {
    Linear lerp_x, lerp_r;
    LowRank parts[kParts];  // of w, k, v, r and g
    Linear gate, receptance;
  };
  std::vector<More> more;
  int64_t mix_rank = 0, decay_rank = 0;
  // Every period-th layer ends with a halving, so that 16 bits hold the residual stream. The
  // matrices in the file make up for it.
  int64_t period = 0;

  void tensors(Slots& s) override {
    more.resize(size_t(n_layers));
    Rwkv::tensors(s);
  }
  void time_slots(Slots& s, int64_t i) override {
    More& m = more[size_t(i)];
    TimeMix& w = layers[size_t(i)].time;
    s.add(m.lerp_x, "time_mix_lerp_x", 1, dim);
    for (int64_t p = 0; const char letter : std::string("wkvrg")) {
      LowRank& part_of = m.parts[p];
      const std::string end = std::string("_") + letter;
      s.add(part_of.added, "time_mix_lerp" + end, 1, dim)
          .in_gguf("time_mix_lerp_fused", part(p * dim, kParts * dim))
          .or_in_gguf("time_mix_lerp" + end)
          .matrix_of(kParts)
          .shape_in_gguf({dim, 1, 1, kParts});
      s.add(part_of.down, "time_mix_w1" + end, mix_rank, dim)
          .in_gguf("time_mix_w1", part(p * mix_rank, kParts * mix_rank))
          .small();
      s.add(part_of.up, "time_mix_w2" + end, dim, mix_rank)
          .in_gguf("time_mix_w2", part(p * dim, kParts * dim))
          .planes_in_gguf(kParts)
          .small();
      ++p;
    }
    s.add(m.gate, "time_mix_gate", dim, dim);
    low_rank_slots(s, w.decay, "time_mix_decay_w1", "time_mix_decay_w2", "time_mix_decay",
                   decay_rank);
    s.add(w.bonus, "time_mix_first", 1, dim).matrix_of(wkv_heads());
  }
  void channel_slots(Slots& s, int64_t i) override {
    More& m = more[size_t(i)];
    s.add(m.lerp_r, "channel_mix_lerp_r", 1, dim);
    s.add(m.receptance, "channel_mix_receptance", dim, dim);
  }

  ValueId time_mix(Graph& g, ValueId n, ValueId before, size_t i, ValueId&) const override {
    const More& m = more[i];
    const TimeMix& t = layers[i].time;
    const auto tanh = [&](ValueId x) { return g.activate(Activation::tanh, x); };
    const ValueId x = lerp(g, n, before, m.lerp_x);
    const auto mixed = [&](int p) {
      const ValueId how = low_rank(g, tanh(linear(g, x, m.parts[p].down)), m.parts[p]);
      return g.add(n, g.mul(before, how));
    };
    const ValueId w = low_rank(g, tanh(linear(g, mixed(0), t.decay.down)), t.decay);
    const ValueId k = linear(g, mixed(1), t.k), v = linear(g, mixed(2), t.v),
                  r = linear(g, mixed(3), t.r), gate = g.silu(linear(g, mixed(4), m.gate));
    const ValueId y = g.wkv({r, k, v, w}, wkv(), *t.bonus.weight);
    return linear(g, g.mul(gate, head_norm(g, y, t.norm)), t.output);
  }
  ValueId channel_mix(Graph& g, ValueId n, ValueId before, size_t i) const override {
    const More& m = more[i];
    const ValueId r = linear(g, lerp(g, n, before, m.lerp_r), m.receptance);
    return g.mul(g.activate(Activation::sigmoid, r), Rwkv::channel_mix(g, n, before, i));
  }
  ValueId after_layer(Graph& g, ValueId x, size_t i) const override {
    return period > 0 && int64_t(i + 1) % period == 0 ? g.scale(x, 0.5f) : x;
  }
};

}  // namespace

extern const Architecture kRwkv6;
const Architecture kRwkv6{"rwkv6", {}, make_model<Rwkv6>};

}  // namespace chaski
