// GPT-2: layer norm, learned positions, one weight for q, k and v, gelu feed-forward, biases
// everywhere.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Gpt2 : public Decoder {
  struct Layer {
    Linear attn_norm, attn_qkv, attn_output, ffn_norm;
    PlainWeights ffn;
  };
  Linear position_embd;
  std::vector<Layer> layers;
  std::vector<Weight> parts;  // views of attn_qkv and its bias: q, k, v of each layer

  void keys(Keys& k) override {
    size_keys(k);
    gpt_size_names(k);
    k["head_count_kv"].not_in_hf();
    k["head_dim"].not_in_hf();
    k["feed_forward_length"].in_hf("n_inner").hf_otherwise([this] { return 4 * dim; });
    layer_norm_key(k);
    k.hf_expects({"activation_function"}, {"gelu_new", "gelu_pytorch_tanh"});
    k.hf_expects({"scale_attn_weights"}, {true});
    k.hf_expects({"scale_attn_by_inverse_layer_idx"}, {false});
    k.hf_expects({"add_cross_attention"}, {false});
    k.hf_tied = true;
  }

  void agree(const std::string& file) const override {
    if (kv_heads != heads)
      fail(Exit::bad_file,
           "{}: model.head_count_kv is {}, expected model.head_count {} in a gpt2 model", file,
           kv_heads, heads);
    if (q_rows() != dim)
      fail(Exit::bad_file,
           "{}: model.head_dim is {}, expected model.embedding_length {} / {} heads", file,
           head_dim, dim, heads);
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.hf_unread = {".attn.bias", ".attn.masked_bias"};  // causal masks
    s.add(token_embd, "token_embd", vocab, dim).in_hf("wte").as(Role::token_table);
    s.add(position_embd, "position_embd", context, dim).in_hf("wpe").as(Role::position_table);
    const auto linear = [&](Linear& member, const char* name, int64_t rows, int64_t cols,
                            const char* hf) {
      s.add(member, name, rows, cols).in_hf(hf, kTransposed).with(Bias::always);
    };
    const auto norm = [&](Linear& member, const char* name, const char* hf) {
      s.add(member, name, 1, dim).in_hf(hf).with(Bias::always);
    };
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "h.");
      norm(l.attn_norm, "attn_norm", "ln_1");
      linear(l.attn_qkv, "attn_qkv", 3 * dim, dim, "attn.c_attn");
      linear(l.attn_output, "attn_output", dim, dim, "attn.c_proj");
      norm(l.ffn_norm, "ffn_norm", "ln_2");
      linear(l.ffn.up, "ffn_up", ffn, dim, "mlp.c_fc");
      linear(l.ffn.down, "ffn_down", dim, ffn, "mlp.c_proj");
    }
    s.after_layers();
    norm(output_norm, "output_norm", "ln_f");
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional();
  }

  void build(Graph& g) const override {
    ValueId x = g.add(g.get_rows(*token_embd.weight),
                      g.get_rows(*position_embd.weight, GetRows::By::position));
    const Weight* p = parts.data();
    for (const Layer& l : layers) {
      const ValueId n = layer_norm(g, x, l.attn_norm);
      const ValueId q = g.matmul(n, p[0], p + 3), k = g.matmul(n, p[1], p + 4),
                    v = g.matmul(n, p[2], p + 5);
      const StateId kv = g.state(Paged{heads, head_dim, head_dim, 0});
      g.kv_write(kv, k, v, p + 4);  // a bias of all positions changes no weight of attention
      x = g.add(x, linear(g, g.attention(q, kv, 1 / std::sqrt(float(head_dim))), l.attn_output));
      x = g.add(x, plain(g, layer_norm(g, x, l.ffn_norm), l.ffn));
      p += 6;
    }
    logits(g, layer_norm(g, g.take_outputs(x), output_norm));
  }

  // Splits attn_qkv and its bias into three row ranges. A range of a tiled weight is a weight
  // itself because strips have 16 rows.
  void bound(const std::string& file) override {
    if (dim % kStrip)
      fail(Exit::bad_file, "{}: model.embedding_length is {}, expected a multiple of {}", file, dim,
           kStrip);
    for (const Layer& l : layers) {
      const Weight &w = *l.attn_qkv.weight, &b = *l.attn_qkv.bias;
      for (int64_t i = 0; i < 3; ++i)
        parts.push_back({{w.info.name, w.info.format, dim, dim},
                         w.data + size_t(i * dim / kStrip) * strip_bytes(w.info.format, dim)});
      for (int64_t i = 0; i < 3; ++i)
        parts.push_back(
            {{b.info.name, b.info.format, 1, dim}, b.data + size_t(i * dim) * sizeof(float)});
    }
  }
};

}  // namespace

extern const Architecture kGpt2;
const Architecture kGpt2{"gpt2", {"GPT2LMHeadModel"}, make_model<Gpt2>};

}  // namespace chaski
