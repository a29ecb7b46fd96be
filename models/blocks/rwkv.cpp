#include "models/blocks/rwkv.h"

#include <algorithm>

namespace chaski {

void Rwkv::layer_keys(Keys& k) {
  constexpr int64_t kContext = 1 << 20;  // texts have no limit; GGUF files have this number
  k.integer(context, "context_length").not_in_hf().range(1, 1 << 26).otherwise(kContext);
  k.integer(dim, "embedding_length").in_hf("hidden_size").range(2, 1 << 20);
  k.integer(n_layers, "block_count").in_hf("num_hidden_layers").range(1, 4096);
  k.integer(ffn, "feed_forward_length").in_hf("intermediate_size").range(2, 1 << 22);
  // llama.cpp wants it in a file.
  k.integer(no_heads, "head_count")
      .in_gguf("attention.head_count")
      .not_in_hf()
      .range(0, 0)
      .otherwise(int64_t{0});
  k.integer(head_dim, "wkv.head_size")
      .in_hf("head_dim")
      .range(1, 1 << 16)
      .hf_otherwise(int64_t{64});
  k.integer(vocab, "vocab_size").in_hf("vocab_size").range(2, 1 << 24);
  layer_norm_key(k);
  k["norm_epsilon"].in_hf("norm_eps");
  // llama.cpp has it as a constant, which is that of heads of 64 channels.
  constexpr double kInGguf = 64e-5;
  k.number(head_eps, "wkv.norm_epsilon")
      .in_gguf_always(kInGguf)
      .not_in_hf()
      .gguf_otherwise(kInGguf)
      .otherwise([this] { return double(float(head_dim) * eps); })
      .positive();
}

void Rwkv::agree(const std::string& file) const {
  Decoder::agree(file);
  if (dim % head_dim)
    fail(Exit::bad_file, "{}: model.wkv.head_size is {}, expected a divisor of embedding_length {}",
         file, head_dim, dim);
}

void Rwkv::bound(const std::string& file) {
  Decoder::bound(file);
  difference.assign(size_t(2 * dim), 1.0f);
  std::fill_n(difference.begin() + dim, dim, -1.0f);
  before_less_now = {{"before_less_now", Format::f32, 1, 2 * dim},
                     reinterpret_cast<const std::byte*>(difference.data())};
}

void Rwkv::tensors(Slots& s) {
  layers.resize(size_t(n_layers));
  token_slot(s, "embeddings");
  s.add(token_norm, "token_embd_norm", 1, dim).in_hf("layers.0.pre_norm").with(Bias::always);
  for (int64_t i = 0; i < n_layers; ++i) {
    Layer& l = layers[size_t(i)];
    s.layer(i, "layers.");
    s.add(l.time_norm, "attn_norm", 1, dim).in_hf("attn_norm").with(Bias::always);
    s.add(l.time.r, "time_mix_receptance", dim, dim).in_hf("attn.r_proj");
    s.add(l.time.k, "time_mix_key", dim, dim).in_hf("attn.k_proj");
    s.add(l.time.v, "time_mix_value", dim, dim).in_hf("attn.v_proj");
    time_slots(s, i);
    s.add(l.time.norm, "time_mix_ln", 1, dim).in_hf("attn.g_norm").with(Bias::always);
    s.add(l.time.output, "time_mix_output", dim, dim).in_hf("attn.o_proj");
    s.add(l.channel_norm, "attn_norm_2", 1, dim).in_hf("ffn_norm").with(Bias::always);
    s.add(l.lerp_k, "channel_mix_lerp_k", 1, dim).in_hf("ffn.x_k").bare_in_hf();
    channel_slots(s, i);
    s.add(l.channel.up, "channel_mix_key", ffn, dim).in_hf("ffn.key");
    s.add(l.channel.down, "channel_mix_value", dim, ffn).in_hf("ffn.value");
  }
  end_slots(s, "norm", Bias::always);
}

void Rwkv::low_rank_slots(Slots& s, LowRank& w, const std::string& down, const std::string& up,
                          const std::string& added, int64_t rank, const std::string& hf) {
  s.add(w.down, down, rank, dim).in_hf(hf + ".lora.0").small();
  s.add(w.up, up, dim, rank).in_hf(hf + ".lora.2").small();
  if (!added.empty()) s.add(w.added, added, 1, dim).in_hf(hf + ".lora.2.bias").bare_in_hf();
}

void Rwkv::build(Graph& g) const {
  ValueId x = layer_norm(g, embedding(g), token_norm), first = kNone;
  const auto before = [&](ValueId n) { return g.short_conv(n, before_less_now); };
  for (size_t i = 0; i < layers.size(); ++i) {
    const ValueId n = layer_norm(g, x, layers[i].time_norm);
    x = residual(g, x, time_mix(g, n, before(n), i, first));
    const ValueId m = layer_norm(g, x, layers[i].channel_norm);
    x = after_layer(g, residual(g, x, channel_mix(g, m, before(m), i)), i);
  }
  logits(g, layer_norm(g, g.take_outputs(x), output_norm));
}

ValueId Rwkv::channel_mix(Graph& g, ValueId n, ValueId before, size_t i) const {
  return plain(g, lerp(g, n, before, layers[i].lerp_k), layers[i].channel);
}

ValueId Rwkv::head_norm(Graph& g, ValueId y, const Linear& w) const {
  return g.layer_norm(y, *w.weight, *w.bias, head_eps, wkv_heads());
}

}  // namespace chaski
