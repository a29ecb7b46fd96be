// LFM2: gated short convolutions, with grouped-query attention in some layers. Its models with
// experts choose them by a sigmoid with a bias.
#include <algorithm>

#include "models/blocks/hybrid.h"

namespace chaski {

namespace {

class Lfm2 : public Hybrid {
 public:
  Lfm2() {
    head_norms = half_split_in_gguf = true, qkv_bias = Bias::none;
    hf.norm = "operator_norm", hf.ffn_norm = "ffn_norm", hf.last_norm = "embedding_norm";
    hf.last_norm_in_gguf = "token_embd_norm";
  }

  void keys(Keys& k) override {
    own_keys(k);
    // Older files have the width before it is cut to two thirds and rounded up.
    k.flag(adjusted, "ffn_adjusted")
        .not_in_gguf()
        .in_hf("block_auto_adjust_ff_dim")
        .hf_otherwise(true)
        .optional();
    k.number(multiplier, "ffn_multiplier")
        .not_in_gguf()
        .in_hf("block_ffn_dim_multiplier")
        .between(0, 1e4)
        .optional();
    k.integer(multiple, "ffn_multiple")
        .not_in_gguf()
        .in_hf("block_multiple_of")
        .range(1, 1 << 20)
        .optional();
    k.integer(ffn, "feed_forward_length")
        .in_hf({"block_ff_dim", "intermediate_size"})
        .range(2, 1 << 22)
        .converted_from_hf_integer([this](int64_t width) {
          if (!adjusted || width < 2 || width > 1 << 22) return Given(width);
          const auto cut = int64_t(multiplier * double(2 * width / 3));
          return Given((cut + multiple - 1) / multiple * multiple);
        });
  }

  void tensors(Slots& s) override {
    convolutions.resize(size_t(n_layers));
    Hybrid::tensors(s);
  }

 protected:
  void own_keys(Keys& k) {
    size_keys(k);
    std::erase_if(k.list, [](const Key& key) {
      return key.ours == "model.head_count_kv" || key.ours == "model.feed_forward_length";
    });
    k.integers(attending, "attention_numbers", n_layers)
        .not_in_gguf()
        .in_hf("full_attn_idxs")
        .filled_in_hf(-1)
        .range(-1, 4096)
        .optional();
    kv_list_key(k, "layer_types", "full_attention", "conv");
    k["attention_layers"].hf_otherwise([this](const std::string&) -> std::optional<Given> {
      if (attending.empty()) return std::nullopt;
      std::vector<int64_t> list;
      for (int64_t i = 0; i < n_layers; ++i) list.push_back(std::ranges::count(attending, i) > 0);
      return list;
    });
    rope_keys(k);
    k["rope_theta"].hf_otherwise(1000000.0);
    rms_norm_key(k);
    k["norm_epsilon"].in_hf("norm_eps").hf_otherwise(1e-5);
    k.integer(taps, "shortconv.l_cache")
        .in_hf("conv_L_cache")
        .range(2, 64)
        .hf_otherwise(int64_t{3});
    k.hf_expects({"conv_bias"}, {false});
    k.hf_expects({"tie_embedding"}, {true});
    k.hf_tied = true;
  }

  void attend_slots(Slots& s, int64_t i) override {
    if (!attends(i)) return convolution_slots(s, convolutions[size_t(i)]);
    AttentionWeights& w = layers[size_t(i)].attn;
    attention_slots(s, w, qkv_bias, halves()).in_hf("self_attn.out_proj");
    const auto norms = head_norm_slots(s, w, halves());
    norms[0]->in_hf("self_attn.q_layernorm", halves());
    norms[1]->in_hf("self_attn.k_layernorm", halves());
  }

  ValueId attend(Graph& g, ValueId n, size_t i) const override {
    if (attends(int64_t(i))) return attention(g, n, layers[i].attn, int(i));
    const Convolution& c = convolutions[i];
    const ValueId b = linear(g, n, c.b), open = linear(g, n, c.c), x = linear(g, n, c.x);
    return linear(g, g.mul(open, g.short_conv(g.mul(b, x), *c.taps.weight)), c.out);
  }

  void feed_slots(Slots& s, int64_t i) override {
    gated_slots(s, layers[size_t(i)].ffn,
                {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"});
  }

 private:
  struct Convolution {
    Linear b, c, x, taps, out;
  };
  std::vector<Convolution> convolutions;
  // The numbers of the layers with attention in older files, then -1.
  std::vector<int64_t> attending;
  bool adjusted = false;
  double multiplier = 1;
  int64_t multiple = 256;

  void convolution_slots(Slots& s, Convolution& w) const {
    const auto in = [&](Linear& member, const char* name, int64_t first) {
      const RowOrder order = part(first, 3 * dim);
      s.add(member, name, dim, dim)
          .in_hf("conv.in_proj", order)
          .in_gguf("shortconv.in_proj", order);
    };
    in(w.b, "conv_in_b", 0), in(w.c, "conv_in_c", dim), in(w.x, "conv_in_x", 2 * dim);
    auto& weights = s.add(w.taps, "shortconv.conv", 1, taps * dim);
    weights.in_hf("conv.conv").transpose_of(dim);
    s.add(w.out, "shortconv.out_proj", dim, dim).in_hf("conv.out_proj");
  }
};

class Lfm2Moe : public Lfm2 {
 public:
  Lfm2Moe() {
    choice_bias = Bias::maybe, gating = kSigmoid;
    names = {"feed_forward.gate", "feed_forward.experts.*.w1", "feed_forward.experts.*.w3",
             "feed_forward.experts.*.w2"};
    names.bias = "feed_forward.expert_bias";
  }

  void keys(Keys& k) override {
    own_keys(k);
    k.integer(ffn, "feed_forward_length").in_hf("intermediate_size").range(2, 1 << 22);
    expert_keys(k);
    expert_width_key(k);
    router_keys(k, kSigmoid);
    k["leading_dense_block_count"].in_hf("num_dense_layers").hf_otherwise(int64_t{2});
    k["expert_weights_norm"].otherwise(true);
    k["expert_group_count"].not_in_hf(), k["expert_group_used_count"].not_in_hf();
    k["expert_shared_count"].not_in_hf().otherwise(int64_t{0});
    k.hf_tensors("use_expert_bias", {".expert_bias"}, true);
  }

 private:
  void feed_slots(Slots& s, int64_t i) override {
    has_experts(i) ? Experts::feed_slots(s, i) : Lfm2::feed_slots(s, i);
  }
};

}  // namespace

extern const Architecture kLfm2, kLfm2Moe;
const Architecture kLfm2{"lfm2", {"Lfm2ForCausalLM", "LFM2ForCausalLM"}, make_model<Lfm2>};
const Architecture kLfm2Moe{"lfm2moe", {"Lfm2MoeForCausalLM"}, make_model<Lfm2Moe>};

}  // namespace chaski
