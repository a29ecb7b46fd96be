// Mamba (Gu and Dao 2023), Falcon Mamba and Mamba 2 (Dao and Gu 2024), also Codestral Mamba: layers
// of one norm and one mixer, without attention and feed-forward.
#include "models/blocks/hybrid.h"

namespace chaski {

namespace {

class MambaLayers : public Hybrid {
 public:
  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers)), mambas.resize(size_t(n_layers));
    s.hf_prefix = "backbone.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("embeddings").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      s.layer(i, "layers.");
      s.add(layers[size_t(i)].attn_norm, "attn_norm", 1, dim).in_hf("norm");
      mamba_slots(s, mambas[size_t(i)]);
    }
    end_slots(s, "norm_f");
  }

  void build(Graph& g) const override {
    ValueId x = embedding(g);
    for (size_t i = 0; i < layers.size(); ++i)
      x = residual(g, x, mamba(g, rms_norm(g, x, layers[i].attn_norm), mambas[i]));
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }

 protected:
  MambaLayers() { heads = kv_heads = 1, hf.mixer = "mixer."; }

  // Texts have no limit; GGUF files have this number.
  static constexpr int64_t kContext = 1 << 20;

  void layer_keys(Keys& k) {
    k.integer(context, "context_length").not_in_hf().range(1, 1 << 26).otherwise(kContext);
    k.integer(dim, "embedding_length").in_hf("hidden_size").range(2, 1 << 20);
    k.integer(n_layers, "block_count").in_hf("num_hidden_layers").range(1, 4096);
    // llama.cpp wants the last two in a file.
    k.integer(ffn, "feed_forward_length").not_in_hf().range(0, 0).otherwise(int64_t{0});
    k.integer(no_heads, "head_count")
        .in_gguf("attention.head_count")
        .not_in_hf()
        .range(0, 0)
        .otherwise(int64_t{0});
    k.integer(vocab, "vocab_size").in_hf("vocab_size").range(2, 1 << 24);
    rms_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_epsilon").hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"layer_types"}, {});
    k.hf_tensors("use_conv_bias", {".conv1d.bias"}, true);
    k.hf_tensors("use_bias", {".in_proj.bias", ".out_proj.bias"});
  }

 private:
  int64_t no_heads = 0;
};

class Mamba1 : public MambaLayers {
 public:
  Mamba1() { has_heads = false; }

  void keys(Keys& k) override {
    layer_keys(k);
    mixer_keys(k, "conv_kernel", "expand", "state_size", "time_step_rank");
    k["ssm.state_size"].hf_otherwise(int64_t{16});
    k["ssm.time_step_rank"].hf_otherwise([this] { return Given((dim + 15) / 16); });
    k.flag(plain_norms, "ssm.dt_b_c_rms").not_in_hf().otherwise(plain_norms);
    // GGUF files have one number for all norms, which is 1e-5 in the published ones.
    k.number(plain_eps, "ssm.norm_epsilon")
        .in_gguf_always(1e-5)
        .in_hf("mixer_rms_eps")
        .when([this] { return plain_norms; })
        .hf_otherwise(1e-6)
        .gguf_otherwise([this] { return double(eps); })
        .positive();
    k.hf_tied = true;
    k.hf_expects({"intermediate_size"}, {inner}, "expand times hidden_size, ");
  }
};

// Time steps, B and C are normed, without weights.
class FalconMamba : public Mamba1 {
 public:
  FalconMamba() { plain_norms = true; }
};

class Mamba2 : public MambaLayers {
 public:
  void keys(Keys& k) override {
    layer_keys(k);
    mixer_keys(k, "conv_kernel", "expand", "state_size", "num_heads");
    k["ssm.state_size"].hf_otherwise(int64_t{128});
    k["ssm.time_step_rank"].hf_otherwise(int64_t{128});
    group_key(k, "n_groups");
    k["ssm.group_count"].hf_otherwise(int64_t{8});
    expect_head_width(k, "head_dim", "expand * hidden_size / num_heads");
    expect_no_step_limits(k);
  }
};

}  // namespace

extern const Architecture kMamba, kFalconMamba, kMamba2;
const Architecture kMamba{"mamba", {"MambaForCausalLM"}, make_model<Mamba1>};
const Architecture kFalconMamba{"mamba", {"FalconMambaForCausalLM"}, make_model<FalconMamba>};
const Architecture kMamba2{"mamba2", {"Mamba2ForCausalLM"}, make_model<Mamba2>};

}  // namespace chaski
