// GPT-2: layer norm, learned positions, one weight for q, k and v, gelu feed-forward, biases
// everywhere.
#include "models/architecture.h"

namespace chaski {

namespace {

struct Linear {
  const Weight *weight = nullptr, *bias = nullptr;
};

struct Layer {
  Linear attn_norm, attn_qkv, attn_output, ffn_norm, ffn_up, ffn_down;
};

struct Gpt2 : Model {
  const Weight *token_embd = nullptr, *position_embd = nullptr, *output = nullptr;
  Linear output_norm;
  std::vector<Layer> layers;
  std::vector<Weight> parts;  // q, k, v of each layer: views of attn_qkv

  void build(Graph& g) const override {
    const Hyper& h = hyper;
    const float scale = 1 / std::sqrt(float(h.head_dim));
    auto norm = [&](ValueId x, const Linear& n) {
      return g.layer_norm(x, *n.weight, *n.bias, h.eps);
    };
    auto linear = [&](ValueId x, const Linear& l) { return g.matmul(x, *l.weight, l.bias); };
    ValueId x = g.add(g.get_rows(*token_embd), g.get_rows(*position_embd, GetRows::By::position));
    const Weight* p = parts.data();
    for (const Layer& l : layers) {
      const ValueId n = norm(x, l.attn_norm);
      const ValueId q = g.matmul(n, p[0], p + 3), k = g.matmul(n, p[1], p + 4),
                    v = g.matmul(n, p[2], p + 5);
      const StateId kv = g.state(Paged{h.heads, h.head_dim, h.head_dim, 0});
      g.kv_write(kv, k, v);
      x = g.add(x, linear(g.attention(q, kv, scale), l.attn_output));
      x = g.add(x, linear(g.gelu(linear(norm(x, l.ffn_norm), l.ffn_up)), l.ffn_down));
      p += 6;
    }
    g.set_result(g.matmul(norm(g.take_outputs(x), output_norm), output ? *output : *token_embd));
  }

  // Three row ranges of attn_qkv and of its bias; strips of 16 rows make a range of a tiled weight
  // a weight of its own.
  void bound(const std::string& file) override {
    if (hyper.kv_heads != hyper.heads)
      fail(Exit::bad_file,
           "{}: model.head_count_kv is {}, expected model.head_count {} in a gpt2 model", file,
           hyper.kv_heads, hyper.heads);
    if (int64_t(hyper.heads) * hyper.head_dim != hyper.dim)
      fail(Exit::bad_file,
           "{}: model.head_dim is {}, expected {} heads of it to make model.embedding_length {}",
           file, hyper.head_dim, hyper.heads, hyper.dim);
    if (hyper.dim % kStrip)
      fail(Exit::bad_file, "{}: model.embedding_length is {}, expected a multiple of {}", file,
           hyper.dim, kStrip);
    for (const Layer& l : layers) {
      const Weight &w = *l.attn_qkv.weight, &b = *l.attn_qkv.bias;
      for (int64_t i = 0; i < 3; ++i)
        parts.push_back(
            {{w.info.name, w.info.format, hyper.dim, hyper.dim},
             w.data + size_t(i * hyper.dim / kStrip) * strip_bytes(w.info.format, hyper.dim)});
      for (int64_t i = 0; i < 3; ++i)
        parts.push_back({{b.info.name, b.info.format, 1, hyper.dim},
                         b.data + size_t(i * hyper.dim) * sizeof(float)});
    }
  }
};

std::vector<TensorSlot> tensors(Model& model) {
  auto& m = static_cast<Gpt2&>(model);
  const Hyper& h = m.hyper;
  std::vector<TensorSlot> out{{"token_embd", h.vocab, h.dim, &m.token_embd},
                              {"position_embd", h.context, h.dim, &m.position_embd}};
  auto linear = [&](const std::string& name, int64_t rows, int64_t cols, Linear& l) {
    out.push_back({name, rows, cols, &l.weight});
    out.push_back({name + ".bias", 1, rows == 1 ? cols : rows, &l.bias});
  };
  for (int64_t i = 0; i < h.layers; ++i) {
    Layer& l = m.layers[size_t(i)];
    const std::string p = fmt::format("layer.{}.", i);
    linear(p + "attn_norm", 1, h.dim, l.attn_norm);
    linear(p + "attn_qkv", 3 * h.dim, h.dim, l.attn_qkv);
    linear(p + "attn_output", h.dim, h.dim, l.attn_output);
    linear(p + "ffn_norm", 1, h.dim, l.ffn_norm);
    linear(p + "ffn_up", h.ffn, h.dim, l.ffn_up);
    linear(p + "ffn_down", h.dim, h.ffn, l.ffn_down);
  }
  linear("output_norm", 1, h.dim, m.output_norm);
  out.push_back({"output", h.vocab, h.dim, &m.output, true});
  return out;
}

std::unique_ptr<Model> make(const Hyper& hyper) {
  auto m = std::make_unique<Gpt2>();
  m->hyper = hyper;
  m->layers.resize(size_t(hyper.layers));
  return m;
}

}  // namespace

extern const Architecture kGpt2;
const Architecture kGpt2{"gpt2", make, tensors};

}  // namespace chaski
