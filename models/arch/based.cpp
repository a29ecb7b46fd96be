// Based (Arora et al. 2024, arXiv 2402.18668): gated short convolutions, in some layers linear
// attention (ops/taylor_scan.h), in some attention with a window. Folders are those of the authors'
// code.
#include <algorithm>

#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Based : public Llama {
 public:
  void keys(Keys& k) override {
    width_keys(k);
    kind_keys(k);
    rotary_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_epsilon").hf_otherwise(1e-5);
    recall_keys(k);
    k.integer(window, "sliding_window")
        .in_gguf("attention.sliding_window")
        .in_hf("alt_mixer_2.window_size")
        .range(1, 1 << 30)
        .required_in_hf()
        .converted_from_hf_integer([](int64_t n) { return Given(n < 0 ? n : n / 2 + 1); });
    k.integer(inner, "convolution_length")
        .in_hf("mixer.expand_proj")
        .range(2, 1 << 22)
        .converted_from_hf([this](double times) { return Given(int64_t(times) * dim / 2); })
        .hf_otherwise([this] { return Given(dim); });
    k.integer(taps, "ssm.conv_kernel").in_hf("mixer.kernel_size").range(2, 64).hf_otherwise(3);
    k.hf_tied = true;
    expect_parts(k);
  }

  void agree(const std::string& file) const override {
    Llama::agree(file);
    if (dim % heads || dim % recall_heads)
      fail(Exit::bad_file,
           "{}: model.embedding_length is {}, expected a multiple of head_count {} and of "
           "recall.head_count {}",
           file, dim, heads, recall_heads);
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers)), mixers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.add(token_embd, "token_embd", vocab, dim)
        .in_hf("embeddings.word_embeddings")
        .as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("norm1");
      attend_slots(s, i);
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("norm2");
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.fc1", part(0, 2 * ffn));
      s.add(l.ffn.gate, "ffn_gate", ffn, dim).in_hf("mlp.fc1", part(ffn, 2 * ffn));
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.fc2");
    }
    end_slots(s, "ln_f");
  }

 private:
  static constexpr int64_t kTrained = 2048;  // positions; a text may have more
  enum Kind : int64_t { kConvolution, kRecall, kWindow };
  struct Mixer {
    Linear u, gate, conv, conv_bias, out;  // of a convolution
    Linear q, k, v;                        // of linear attention, with `out`
  };
  std::vector<Mixer> mixers;
  std::vector<int64_t> recalls, windows, kinds;  // config.json's lists of layers; by layer
  int64_t inner = 0, taps = 3, multiple = 1, features = 16, recall_heads = 16;

  void width_keys(Keys& k) {
    k.integer(context, "context_length")
        .in_hf("n_positions")
        .range(1, 1 << 26)
        .converted_from_hf_integer([](int64_t n) { return Given(n > 0 ? n : kTrained); })
        .hf_otherwise(kTrained);
    k.integer(dim, "embedding_length").in_hf("n_embd").range(2, 1 << 20).required_in_hf();
    k.integer(n_layers, "block_count").in_hf("n_layer").range(1, 4096).required_in_hf();
    k.integer(heads, "head_count")
        .in_gguf("attention.head_count")
        .in_hf("n_head")
        .range(1, 4096)
        .required_in_hf();
    k.integer(kv_heads, "head_count_kv")
        .in_gguf("attention.head_count_kv")
        .in_hf("n_head_kv")
        .range(1, 4096)
        .otherwise([this] { return int64_t{heads}; });
    k.integer(head_dim, "head_dim")
        .in_gguf("attention.key_length")
        .not_in_hf()
        .range(1, 1 << 20)
        .otherwise([this] { return dim / heads; });
    k.integer(ffn, "feed_forward_length").in_hf("n_inner").range(2, 1 << 22).required_in_hf();
    k.integer(multiple, "vocab_multiple")
        .not_in_gguf()
        .in_hf("pad_vocab_size_multiple")
        .range(1, 1 << 20)
        .otherwise(int64_t{1});
    k.integer(vocab, "vocab_size")
        .in_hf("vocab_size")
        .range(2, 1 << 24)
        .required_in_hf()
        .converted_from_hf_integer(
            [this](int64_t n) { return Given((n + multiple - 1) / multiple * multiple); });
  }
  void kind_keys(Keys& k) {
    const auto list_key = [&](std::vector<int64_t>& list, const char* name, const char* in_hf) {
      k.integers(list, name, n_layers).not_in_gguf().in_hf(in_hf).filled_in_hf(-1);
      k[name].range(-1, 4096).required_in_hf().optional();
    };
    list_key(recalls, "recall_layers", "alt_mixer_layers");
    list_key(windows, "window_layers", "alt_mixer_2_layers");
    k.integers(kinds, "mixer_kinds", n_layers).not_in_hf().range(0, 2).otherwise([this] {
      std::vector<int64_t> list;
      for (int64_t i = 0; i < n_layers; ++i)
        list.push_back(std::ranges::count(windows, i)   ? kWindow
                       : std::ranges::count(recalls, i) ? kRecall
                                                        : kConvolution);
      return Given(list);
    });
  }
  void rotary_keys(Keys& k) {
    k.integer(rope.dim, "rope_dim")
        .in_gguf("rope.dimension_count")
        .in_hf("rotary_emb_fraction")
        .range(0, 1 << 20)
        .converted_from_hf([this](double part) { return Given(int64_t(head_dim * part)); })
        .otherwise(int64_t{0});
    k.number(rope.theta, "rope_theta")
        .in_gguf("rope.freq_base")
        .in_hf("rotary_emb_base")
        .otherwise(10000.0)
        .positive();
    k.hf_expects({"rotary_emb_interleaved"}, {false});
    k.hf_expects({"rotary_emb_scale_base"}, {});
  }
  void recall_keys(Keys& k) {
    k.integer(recall_heads, "recall.head_count")
        .in_hf("alt_mixer.num_heads")
        .range(1, 4096)
        .hf_otherwise(int64_t{16});
    k.integer(features, "recall.key_length")
        .in_hf("alt_mixer.feature_dim")
        .range(1, 1 << 10)
        .hf_otherwise(int64_t{16});
    k.hf_expects({"alt_mixer.feature_map.input_dim"}, {features});
    if (recall_heads > 0) k.hf_expects({"alt_mixer.head_dim"}, {dim / recall_heads});
  }
  // Refuses configs of other models that the authors' code can build.
  static void expect_parts(Keys& k) {
    const std::string of = "based.models.mixers.";
    k.hf_expects({"_target_"}, {"based.models.gpt.GPT2MixerConfig"});
    k.hf_expects({"mixer._target_"}, {of + "convolution.BaseConv"});
    k.hf_expects({"alt_mixer._target_"}, {of + "linear_attention.LinearAttention"});
    k.hf_expects({"alt_mixer.feature_map._target_"}, {of + "linear_attention.TaylorExp"});
    k.hf_expects({"alt_mixer_2._target_"}, {of + "slide_attention.SlidingAttention"});
    k.hf_expects({"activation_function"}, {"swiglu"});
    for (const char* key : {"rms_norm", "prenorm", "mixer.use_bias", "scale_attn_weights"})
      k.hf_expects({key}, {true});
    for (const char* key : {"parallel_block", "mlp_fc1_bias", "mlp_fc2_bias", "qkv_proj_bias",
                            "out_proj_bias", "lm_head_bias", "scale_attn_by_inverse_layer_idx"})
      k.hf_expects({key}, {false});
    k.hf_expects({"max_position_embeddings"}, {int64_t{0}});
    for (const char* key : {"head_dim", "word_embed_proj_dim"}) k.hf_expects({key}, {});
    k.hf_expects({"mlp_type"}, {"base"});
  }

  void attend_slots(Slots& s, int64_t i) override {
    const int64_t kind = kinds[size_t(i)];
    Mixer& m = mixers[size_t(i)];
    if (kind == kWindow) {
      AttentionWeights& w = layers[size_t(i)].attn;
      fused_slots(s, w, "mixer.Wqkv", 1, Bias::none, true);
      s.add(w.output, "attn_output", dim, int64_t(heads) * head_dim).in_hf("mixer.out_proj");
    } else if (kind == kRecall) {
      s.add(m.q, "recall_q", recall_heads * features, dim).in_hf("mixer.proj_q");
      s.add(m.k, "recall_k", recall_heads * features, dim).in_hf("mixer.proj_k");
      s.add(m.v, "recall_v", dim, dim).in_hf("mixer.proj_v");
      s.add(m.out, "recall_output", dim, dim).in_hf("mixer.out_proj");
    } else {
      const auto in = [&](Linear& w, const char* name, int64_t first) {
        s.add(w, name, inner, dim)
            .in_hf("mixer.in_proj", part(first, 2 * inner))
            .with(Bias::always);
      };
      in(m.u, "conv_in", 0);
      in(m.gate, "conv_gate", inner);
      s.add(m.conv, "ssm_conv1d", 1, taps * inner).in_hf("mixer.conv.conv").transpose_of(inner);
      s.add(m.conv_bias, "ssm_conv1d.bias", 1, inner)
          .in_hf("mixer.conv.conv.bias")
          .bare_in_hf()
          .optional();
      s.add(m.out, "conv_output", dim, inner).in_hf("mixer.out_proj").with(Bias::always);
    }
  }

  ValueId attend(Graph& g, ValueId n, size_t i) const override {
    if (kinds[i] == kWindow) return Llama::attend(g, n, i);
    const Mixer& m = mixers[i];
    if (kinds[i] == kRecall) {
      const TaylorScan op{0, int(recall_heads), int(features), int(dim / recall_heads)};
      return linear(g, g.taylor_scan(linear(g, n, m.q), linear(g, n, m.k), linear(g, n, m.v), op),
                    m.out);
    }
    const ValueId u = g.short_conv(linear(g, n, m.u), *m.conv.weight, m.conv_bias.weight, true);
    return linear(g, g.mul(u, linear(g, n, m.gate)), m.out);
  }
};

}  // namespace

extern const Architecture kBased;
const Architecture kBased{
    "based", {"GPTLMHeadModel", "based.models.gpt.GPT2MixerConfig"}, make_model<Based>};

}  // namespace chaski
