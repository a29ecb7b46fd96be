// DeciLM, and Nemotron of a neural architecture search (51B, 49B, 253B): Llama with numbers of
// heads and widths that differ by layer. A layer may have no attention, one matrix instead of it,
// or no feed-forward.
#include <algorithm>

#include "models/blocks/layer_heads.h"

namespace chaski {

namespace {

class Deci : public LayerHeads {
  // config.json has one number of heads for all layers. Of each layer it has the number of heads
  // that share a key head, whether one matrix replaces attention, and the width in units of dim.
  int64_t most_heads = 0;
  std::vector<int64_t> groups, replaced;
  std::vector<float> ffn_parts;

  int64_t width_of(float part) const {
    constexpr int64_t kMultiple = 256;
    return (int64_t(2 * double{part} * double(dim) / 3) + kMultiple - 1) / kMultiple * kMultiple;
  }

  void keys(Keys& k) override {
    // Nothing unless config.json's lists are there.
    const auto each = [this](auto number_of) {
      return [this, number_of](const std::string&) -> std::optional<Given> {
        const auto layers_of = size_t(n_layers);
        if (groups.size() != layers_of || replaced.size() != layers_of ||
            ffn_parts.size() != layers_of)
          return std::nullopt;
        std::vector<int64_t> list;
        for (size_t i = 0; i < groups.size(); ++i) list.push_back(number_of(i));
        return Given(list);
      };
    };
    k.integer(n_layers, "block_count").in_hf("num_hidden_layers").range(1, 4096);
    k.integer(most_heads, "most_heads")
        .not_in_gguf()
        .in_hf("num_attention_heads")
        .range(1, 4096)
        .optional();
    k.integers(groups, "head_groups", n_layers)
        .not_in_gguf()
        .in_hf("block_configs[].attention.n_heads_in_group")
        .range(0, 4096)
        .optional();
    k.flags(replaced, "replaced_attention", n_layers)
        .not_in_gguf()
        .in_hf("block_configs[].attention.replace_with_linear")
        .optional();
    k.numbers(ffn_parts, "feed_forward_parts", [this] { return n_layers; })
        .not_in_gguf()
        .in_hf("block_configs[].ffn.ffn_mult")
        .between(0, 1e4)
        .optional();
    layer_keys(k, 0);
    k["head_count"].not_in_hf().otherwise(
        each([this](size_t i) { return groups[i] > 0 || replaced[i] ? most_heads : 0; }));
    k["head_count_kv"].not_in_hf().otherwise(
        each([this](size_t i) { return groups[i] > 0 ? most_heads / groups[i] : 0; }));
    k["head_dim"].otherwise([this](const std::string& file) -> std::optional<Given> {
      const int64_t most = most_heads > 0        ? most_heads
                           : layer_heads.empty() ? 0
                                                 : *std::ranges::max_element(layer_heads);
      if (most == 0 || dim % most)
        fail(Exit::bad_file,
             "{}: model.head_count is {}, expected a divisor of embedding_length {}", file, most,
             dim);
      return dim / most;
    });
    k["feed_forward_length"].not_in_hf().otherwise(
        each([this](size_t i) { return width_of(ffn_parts[i]); }));
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"attention_bias"}, {false});
    k.hf_expects({"mlp_bias"}, {false});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      const int64_t q = q_rows_of(size_t(i)), kv = kv_rows_of(size_t(i)),
                    inner = layer_ffn[size_t(i)];
      s.layer(i, "layers.");
      if (q > 0) s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      if (attends(size_t(i))) {
        s.add(l.attn.q, "attn_q", q, dim).in_hf("self_attn.q_proj", halves());
        s.add(l.attn.k, "attn_k", kv, dim).in_hf("self_attn.k_proj", halves());
        s.add(l.attn.v, "attn_v", kv, dim).in_hf("self_attn.v_proj");
        s.add(l.attn.output, "attn_output", dim, q).in_hf("self_attn.o_proj");
      } else if (q > 0) {
        s.add(l.attn.output, "attn_output", dim, dim).in_hf("self_attn.linear_attn");
      }
      if (inner == 0) continue;
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      s.add(l.ffn.gate, "ffn_gate", inner, dim).in_hf("mlp.gate_proj");
      s.add(l.ffn.up, "ffn_up", inner, dim).in_hf("mlp.up_proj");
      s.add(l.ffn.down, "ffn_down", dim, inner).in_hf("mlp.down_proj");
    }
    end_slots(s);
  }
};

}  // namespace

extern const Architecture kDeci;
const Architecture kDeci{"deci", {"DeciLMForCausalLM"}, make_model<Deci>};

}  // namespace chaski
