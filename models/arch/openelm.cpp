// OpenELM: Llama with numbers of heads and widths that differ by layer, and with norms of each
// head's queries and keys. In Hugging Face files q, k and v are one tensor, and gate and up are
// another. q and k are half-split (NeoX's rotary order) in GGUF files too.
#include <algorithm>

#include "models/blocks/layer_heads.h"

namespace chaski {

namespace {

class OpenElm : public LayerHeads {
  std::vector<float> ffn_parts;  // widths of feed-forwards, as multiples of dim
  int64_t ffn_divisor = 256;     // of these widths

  // The nearest multiple of the divisor, but not below 90% of the product.
  int64_t width_of(float part) const {
    const double wanted = double{part} * double(dim);
    const int64_t near = std::max(
        ffn_divisor, int64_t(wanted + double(ffn_divisor) / 2) / ffn_divisor * ffn_divisor);
    return double(near) < 0.9 * wanted ? near + ffn_divisor : near;
  }

  void keys(Keys& k) override {
    k.integer(n_layers, "block_count").in_hf("num_transformer_layers").range(1, 4096);
    k.numbers(ffn_parts, "feed_forward_parts", [this] { return n_layers; })
        .not_in_gguf()
        .in_hf("ffn_multipliers")
        .positive()
        .between(0, 1e4)
        .optional();
    k.integer(ffn_divisor, "feed_forward_divisor")
        .not_in_gguf()
        .in_hf("ffn_dim_divisor")
        .range(1, 1 << 20)
        .optional();
    layer_keys(k, 1);
    k["context_length"].in_hf("max_context_length");
    k["embedding_length"].in_hf("model_dim");
    k["head_count"].in_hf("num_query_heads");
    k["head_count_kv"].in_hf("num_kv_heads");
    k["feed_forward_length"].not_in_hf().otherwise(
        [this](const std::string&) -> std::optional<Given> {
          if (ffn_parts.empty()) return std::nullopt;
          std::vector<int64_t> widths;
          for (const float part : ffn_parts) widths.push_back(width_of(part));
          return Given(widths);
        });
    rope_keys(k);
    k["rope_theta"].in_hf("rope_freq_constant");
    rms_norm_key(k);
    k["norm_epsilon"].not_in_hf().otherwise(1e-6);
    k.hf_expects({"activation_fn_name"}, {"swish"});
    k.hf_expects({"ffn_with_glu"}, {true});
    k.hf_expects({"normalization_layer_name"}, {"rms_norm"});
    k.hf_expects({"normalize_qk_projections"}, {true});
    k.hf_expects({"share_input_output_layers"}, {true});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("token_embeddings").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      const int64_t q = q_rows_of(size_t(i)), kv = kv_rows_of(size_t(i)),
                    inner = layer_ffn[size_t(i)];
      s.layer(i, "layers.");
      const auto of_qkv = [&](Linear& member, const char* name, int64_t first, int64_t rows,
                              const RowOrder& order) {
        const RowOrder inside = order.inside(first, q + 2 * kv);
        s.add(member, name, rows, dim).in_hf("attn.qkv_proj", inside).in_gguf("attn_qkv", inside);
      };
      const auto norm = [&](Linear& member, const char* name, const char* hf) {
        s.add(member, name, 1, head_dim).in_hf(hf, halves()).in_gguf(halves());
      };
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("attn_norm");
      of_qkv(l.attn.q, "attn_q", 0, q, halves());
      of_qkv(l.attn.k, "attn_k", q, kv, halves());
      of_qkv(l.attn.v, "attn_v", q + kv, kv, {});
      norm(l.attn.q_norm, "attn_q_norm", "attn.q_norm");
      norm(l.attn.k_norm, "attn_k_norm", "attn.k_norm");
      s.add(l.attn.output, "attn_output", dim, q).in_hf("attn.out_proj");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("ffn_norm");
      s.add(l.ffn.gate, "ffn_gate", inner, dim).in_hf("ffn.proj_1", part(0, 2 * inner));
      s.add(l.ffn.up, "ffn_up", inner, dim).in_hf("ffn.proj_1", part(inner, 2 * inner));
      s.add(l.ffn.down, "ffn_down", dim, inner).in_hf("ffn.proj_2");
    }
    end_slots(s);
  }
};

}  // namespace

extern const Architecture kOpenElm;
const Architecture kOpenElm{"openelm", {"OpenELMForCausalLM"}, make_model<OpenElm>};

}  // namespace chaski
