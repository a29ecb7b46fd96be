// Llama 1, 2, 3.x, Mistral and everything built like them: RMS norm, rotary positions,
// grouped-query attention, gated silu feed-forward. Rows of attn_q and attn_k are in interleaved
// rotary order (importers see to it).
#include "models/architecture.h"

namespace chaski {

namespace {

struct Layer {
  const Weight *attn_norm, *attn_q, *attn_k, *attn_v, *attn_output, *ffn_norm, *ffn_gate, *ffn_up,
      *ffn_down;
  const Weight *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr;
};

struct Llama : Model {
  const Weight *token_embd = nullptr, *output_norm = nullptr, *output = nullptr;
  std::vector<Layer> layers;

  void build(Graph& g) const override {
    const Hyper& h = hyper;
    const float scale = 1 / std::sqrt(float(h.head_dim));
    ValueId x = g.get_rows(*token_embd);
    for (const Layer& l : layers) {
      ValueId n = g.rms_norm(x, *l.attn_norm, h.eps);
      ValueId q = g.matmul(n, *l.attn_q, l.q_bias), k = g.matmul(n, *l.attn_k, l.k_bias),
              v = g.matmul(n, *l.attn_v, l.v_bias);
      q = g.rope(q, h.heads, h.head_dim, h.rope);
      k = g.rope(k, h.kv_heads, h.head_dim, h.rope);
      const StateId kv = g.state(Paged{h.kv_heads, h.head_dim, h.head_dim, h.window});
      g.kv_write(kv, k, v);
      x = g.add(x, g.matmul(g.attention(q, kv, scale), *l.attn_output));
      n = g.rms_norm(x, *l.ffn_norm, h.eps);
      const ValueId gate = g.silu(g.matmul(n, *l.ffn_gate));
      x = g.add(x, g.matmul(g.mul(gate, g.matmul(n, *l.ffn_up)), *l.ffn_down));
    }
    x = g.rms_norm(g.take_outputs(x), *output_norm, h.eps);
    g.set_result(g.matmul(x, output ? *output : *token_embd));
  }
};

std::vector<TensorSlot> tensors(Model& model) {
  auto& m = static_cast<Llama&>(model);
  const Hyper& h = m.hyper;
  const int64_t q = int64_t(h.heads) * h.head_dim, kv = int64_t(h.kv_heads) * h.head_dim;
  std::vector<TensorSlot> out{{"token_embd", h.vocab, h.dim, &m.token_embd}};
  for (int64_t i = 0; i < h.layers; ++i) {
    Layer& l = m.layers[size_t(i)];
    const std::string p = fmt::format("layer.{}.", i);
    out.insert(out.end(), {{p + "attn_norm", 1, h.dim, &l.attn_norm},
                           {p + "attn_q", q, h.dim, &l.attn_q},
                           {p + "attn_k", kv, h.dim, &l.attn_k},
                           {p + "attn_v", kv, h.dim, &l.attn_v},
                           {p + "attn_output", h.dim, q, &l.attn_output},
                           {p + "ffn_norm", 1, h.dim, &l.ffn_norm},
                           {p + "ffn_gate", h.ffn, h.dim, &l.ffn_gate},
                           {p + "ffn_up", h.ffn, h.dim, &l.ffn_up},
                           {p + "ffn_down", h.dim, h.ffn, &l.ffn_down},
                           {p + "attn_q.bias", 1, q, &l.q_bias, true},
                           {p + "attn_k.bias", 1, kv, &l.k_bias, true},
                           {p + "attn_v.bias", 1, kv, &l.v_bias, true}});
  }
  out.push_back({"output_norm", 1, h.dim, &m.output_norm});
  out.push_back({"output", h.vocab, h.dim, &m.output, true});  // absent: tied to token_embd
  return out;
}

std::unique_ptr<Model> make(const Hyper& hyper) {
  auto m = std::make_unique<Llama>();
  m->hyper = hyper;
  m->layers.resize(size_t(hyper.layers));
  return m;
}

}  // namespace

extern const Architecture kLlama;
const Architecture kLlama{"llama", make, tensors};

}  // namespace chaski
