#include "models/blocks/decoder.h"

#include <algorithm>
#include <cstdio>

namespace chaski {

void Decoder::size_keys(Keys& k) {
  // At least two rows, because a weight with one row would be a vector in row layout.
  k.integer(context, "context_length").in_hf("max_position_embeddings").range(1, 1 << 26);
  k.integer(dim, "embedding_length").in_hf("hidden_size").range(2, 1 << 20);
  k.integer(n_layers, "block_count").in_hf("num_hidden_layers").range(1, 4096);
  k.integer(heads, "head_count")
      .in_gguf("attention.head_count")
      .in_hf("num_attention_heads")
      .range(1, 4096);
  k.integer(kv_heads, "head_count_kv")
      .in_gguf("attention.head_count_kv")
      .in_hf("num_key_value_heads")
      .range(1, 4096)
      .otherwise([this] { return int64_t{heads}; });
  k.integer(head_dim, "head_dim")
      .in_gguf("attention.key_length")
      .in_hf("head_dim")
      .range(1, 1 << 20)
      .otherwise([this](const std::string& file) -> std::optional<Given> {
        if (dim % heads)
          fail(Exit::bad_file,
               "{}: model.head_count is {}, expected a divisor of embedding_length {}", file, heads,
               dim);
        return dim / heads;
      });
  k.integer(ffn, "feed_forward_length").in_hf("intermediate_size").range(2, 1 << 22);
  k.integer(vocab, "vocab_size").in_hf("vocab_size").range(2, 1 << 24);
}

void Decoder::further_layers_key(Keys& k) {
  has_further_layers = true;
  k.integer(further_layers, "nextn_predict_layers").not_in_hf().range(0, 64).otherwise(int64_t{0});
  k.integer(n_layers, "layer_count").not_in_gguf().range(1, 4096).otherwise([this] {
    return n_layers - further_layers;
  });
}

namespace {

// Older files have "rope_scaling" and "rope_theta"; newer ones have both inside "rope_parameters",
// which has an object for each kind of layer if they differ.
std::vector<std::string> rope_places(const std::string& name) {
  return {"rope_parameters." + name, "rope_scaling." + name,
          "rope_parameters.full_attention." + name};
}
std::vector<std::string> with(std::vector<std::string> list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}
// The oldest files have "type" instead of "rope_type".
std::vector<std::string> scaling_places() {
  return with(rope_places("rope_type"), rope_places("type"));
}
std::vector<std::string> part_places() {
  return with(rope_places("partial_rotary_factor"), {"partial_rotary_factor"});
}

}  // namespace

void Decoder::key_names(Keys& k, const char* key, const std::vector<std::string>& in_hf,
                        int64_t value) {
  k[key].in_hf(in_hf);
  for (const std::string& name : in_hf) k.hf_expects({name}, {value});
}

void Decoder::gpt_size_names(Keys& k) {
  key_names(k, "context_length", {"n_positions", "max_position_embeddings"}, context);
  key_names(k, "embedding_length", {"n_embd", "hidden_size"}, dim);
  key_names(k, "block_count", {"n_layer", "num_hidden_layers"}, n_layers);
  key_names(k, "head_count", {"n_head", "num_attention_heads"}, heads);
}

void Decoder::rope_keys(Keys& k) {
  scaling_keys(k);
  k.hf_expects(part_places(), {1.0});
}

void Decoder::older_rope_names(Keys& k, const char* part, const char* theta) {
  k["rope_dim"].in_hf(with(rope_places("partial_rotary_factor"), {part}));
  k["rope_theta"].in_hf(with(rope_places("rope_theta"), {theta}));
}

void Decoder::expect_scaling(Keys& k, std::vector<Given> methods) {
  k.hf_expects(scaling_places(), std::move(methods));
}

void Decoder::partial_rope_keys(Keys& k, double usual_part) {
  scaling_keys(k);
  const auto channels = [this](double part) { return Given(int64_t(head_dim * part)); };
  k["rope_dim"].in_hf(part_places()).no_null_in_hf().converted_from_hf(channels).hf_otherwise([=] {
    return channels(usual_part);
  });
}

void Decoder::scaling_keys(Keys& k) {
  const auto scaled = [this] { return rope.scaling != RopeScaling::none; };
  const auto llama3 = [this] { return rope.scaling == RopeScaling::llama3; };
  const auto yarn = [this] { return rope.scaling == RopeScaling::yarn; };
  const auto dynamic = [this] { return rope.scaling == RopeScaling::dynamic; };
  const auto longrope = [this] { return rope.scaling == RopeScaling::longrope; };
  const auto pairs = [this] { return int64_t{rope.dim / 2}; };

  k.integer(rope.dim, "rope_dim")
      .in_gguf("rope.dimension_count")
      .range(2, 1 << 20)
      .otherwise([this] { return int64_t{head_dim}; });
  k.number(rope.theta, "rope_theta")
      .in_gguf("rope.freq_base")
      .in_hf(with(rope_places("rope_theta"), {"rope_theta"}))
      .otherwise(10000.0)
      .positive();
  k.word(rope.scaling, "rope_scaling",
         {{"none", RopeScaling::none},
          {"linear", RopeScaling::linear},
          {"dynamic", RopeScaling::dynamic},
          {"llama3", RopeScaling::llama3},
          {"yarn", RopeScaling::yarn},
          {"longrope", RopeScaling::longrope}})
      .in_gguf("rope.scaling.type")
      .in_hf(scaling_places())
      .hf_word("default", "none")
      .otherwise("none");
  k.integer(rope.original_context, "rope_original_context")
      .in_gguf("rope.scaling.original_context_length")
      .in_hf(with({"original_max_position_embeddings"},
                  rope_places("original_max_position_embeddings")))
      .range(2, 1 << 30)
      .when([=] { return llama3() || yarn() || dynamic() || longrope(); })
      .ignored_in_hf_if(dynamic)  // there it is always the model's context
      .otherwise([=, this]() -> std::optional<Given> {
        if (llama3() || longrope()) return std::nullopt;
        return context;
      });
  k.number(rope.factor, "rope_factor")
      .in_gguf("rope.scaling.factor")
      .in_hf(rope_places("factor"))
      .when(scaled)
      .positive()
      .otherwise([=, this]() -> std::optional<Given> {
        if (!longrope()) return std::nullopt;
        return double(context) / double(rope.original_context);
      });
  // GGUF stores these as tensors: see import_gguf.cpp.
  for (auto [list, name] :
       {std::pair{&rope.short_factors, "short_factor"}, {&rope.long_factors, "long_factor"}})
    k.numbers(*list, "rope_" + std::string(name) + "s", pairs)
        .not_in_gguf()
        .in_hf(rope_places(name))
        .when(longrope)
        .positive();
  // llama3's factors have no key in GGUF: an export writes the resulting frequency divisors.
  k.number(rope.low_freq_factor, "rope_low_freq_factor")
      .not_in_gguf()
      .in_hf(rope_places("low_freq_factor"))
      .when(llama3)
      .positive();
  k.number(rope.high_freq_factor, "rope_high_freq_factor")
      .not_in_gguf()
      .in_hf(rope_places("high_freq_factor"))
      .when(llama3)
      .positive();
  // In config.json 0 means the default.
  const auto or_else = [](double usual) {
    return [usual](double found) { return Given(found == 0 ? usual : found); };
  };
  k.number(rope.beta_fast, "rope_beta_fast")
      .in_gguf("rope.scaling.yarn_beta_fast")
      .in_hf(rope_places("beta_fast"))
      .converted_from_hf(or_else(RopeSpec().beta_fast))
      .when(yarn)
      .optional();
  k.number(rope.beta_slow, "rope_beta_slow")
      .in_gguf("rope.scaling.yarn_beta_slow")
      .in_hf(rope_places("beta_slow"))
      .converted_from_hf(or_else(RopeSpec().beta_slow))
      .when(yarn)
      .optional();
  k.flag(rope.truncate, "rope_truncate")
      .in_gguf_always(true)
      .in_hf(rope_places("truncate"))
      .when(yarn)
      .optional();
  // GGUF's attention factor has another meaning: see import_gguf.cpp.
  k.number(rope.attention_factor, "rope_attention_factor")
      .not_in_gguf()
      .in_hf(rope_places("attention_factor"))
      .when([=] { return yarn() || longrope(); })
      .optional();
  k.number(rope.mscale, "rope_mscale")
      .not_in_gguf()
      .in_hf(rope_places("mscale"))
      .when(yarn)
      .optional();
  k.number(rope.mscale_all_dim, "rope_mscale_all_dim")
      .not_in_gguf()
      .in_hf(rope_places("mscale_all_dim"))
      .when(yarn)
      .optional();
}

void Decoder::window_key(Keys& k) {
  k.integer(window, "sliding_window")
      .in_gguf("attention.sliding_window")
      .in_hf("sliding_window")
      .range(0, 1 << 30)
      .optional();
}

std::vector<int64_t> Decoder::all_but_every(int64_t period) const {
  std::vector<int64_t> list;
  for (int64_t i = 1; i <= n_layers; ++i) list.push_back(period == 0 || i % period != 0);
  return list;
}

void Decoder::window_pattern_key(Keys& k, int64_t period) {
  const auto every = [this](int64_t n) { return Given(all_but_every(n)); };
  k.flags(windowed, "window_layers", n_layers)
      .in_gguf("attention.sliding_window_pattern")
      .in_hf({"layer_types", "sliding_window_pattern", "_sliding_window_pattern"})
      .hf_word("sliding_attention", "1")
      .hf_word("full_attention", "0")
      .or_one(every)
      .otherwise([=] { return every(period); });
}

void Decoder::rms_norm_key(Keys& k) {
  k.number(eps, "norm_epsilon")
      .in_gguf("attention.layer_norm_rms_epsilon")
      .in_hf("rms_norm_eps")
      .hf_otherwise(1e-6)
      .positive();
}

void Decoder::layer_norm_key(Keys& k) {
  k.number(eps, "norm_epsilon")
      .in_gguf("attention.layer_norm_epsilon")
      .in_hf("layer_norm_epsilon")
      .hf_otherwise(1e-5)
      .positive();
}

void Decoder::alibi_key(Keys& k) {
  k.number(max_bias, "max_alibi_bias")
      .in_gguf("attention.max_alibi_bias")
      .not_in_hf()
      .otherwise(8.0)
      .positive();
}

void Decoder::clip_key(Keys& k) {
  k.number(clip, "clamp_kqv").in_gguf("attention.clamp_kqv").in_hf("clip_qkv").optional();
}

void Decoder::factor_keys(Keys& k) {
  k.number(embedding_scale, "embedding_scale").in_hf("embedding_multiplier").otherwise(1.0);
  k.number(residual_scale, "residual_scale").in_hf("residual_multiplier").otherwise(1.0);
  k.number(score_scale, "attention_scale")
      .in_gguf("attention.scale")
      .in_hf("attention_multiplier")
      .hf_otherwise(1.0)
      .optional();
  k.number(logit_divisor, "logit_scale").in_hf("logits_scaling").hf_otherwise(1.0).positive();
}

void Decoder::activation_key(Keys& k, const char* hf, const char* usual) {
  k.word(activation, "activation",
         {{"gelu", Activation::gelu_erf},
          {"gelu_tanh", Activation::gelu},
          {"relu", Activation::relu},
          {"relu2", Activation::relu2},
          {"silu", Activation::silu}})
      .in_hf(hf)
      .hf_word("gelu_new", "gelu_tanh")
      .hf_word("gelu_fast", "gelu_tanh")
      .hf_word("gelu_pytorch_tanh", "gelu_tanh")
      .otherwise(std::string(usual));
}

void Decoder::agree(const std::string& file) const {
  if (heads % kv_heads)
    fail(Exit::bad_file, "{}: model.head_count_kv is {}, expected a divisor of head_count {}", file,
         kv_heads, heads);
  if (rope.dim == 0) return;
  if (rope.dim < 2 || rope.dim > head_dim || rope.dim % 2)
    fail(Exit::bad_file, "{}: model.rope_dim is {}, expected an even number of at most head_dim {}",
         file, rope.dim, head_dim);
  if (rope.scaling == RopeScaling::llama3 && !(rope.high_freq_factor > rope.low_freq_factor))
    fail(Exit::bad_file,
         "{}: model.rope_high_freq_factor is {}, expected more than low_freq_factor {}", file,
         rope.high_freq_factor, rope.low_freq_factor);
}

void Decoder::bound(const std::string&) {
  rope.context = context;
  one_and_zero_.assign(size_t(2 * dim), 0);
  std::fill_n(one_and_zero_.begin(), dim, 1.0f);
  const auto* floats = reinterpret_cast<const std::byte*>(one_and_zero_.data());
  ones_ = {{"ones", Format::f32, 1, dim}, floats};
  zeros_ = {{"zeros", Format::f32, 1, dim}, floats + size_t(dim) * sizeof(float)};
  if (!rope_freqs.weight) return fit_keys();
  const auto* divisors = reinterpret_cast<const float*>(rope_freqs.weight->data);
  rope.freq_factors.assign(divisors, divisors + rope.dim / 2);
  fit_keys();
}

void Decoder::expect_sessions(int64_t context) {
  rope.context = context;
  fit_keys();
}

Slots::Slot& Decoder::attention_slots(Slots& s, AttentionWeights& w, Bias qkv, RowOrder gguf,
                                      RowOrder hf) {
  s.add(w.q, "attn_q", q_rows(), dim).in_hf("self_attn.q_proj", hf).in_gguf(gguf).with(qkv);
  s.add(w.k, "attn_k", kv_rows(), dim).in_hf("self_attn.k_proj", hf).in_gguf(gguf).with(qkv);
  s.add(w.v, "attn_v", kv_rows(), dim).in_hf("self_attn.v_proj").with(qkv);
  return s.add(w.output, "attn_output", dim, q_rows()).in_hf("self_attn.o_proj");
}

void Decoder::fused_slots(Slots& s, AttentionWeights& w, const char* hf, int64_t turns, Bias bias,
                          bool one_in_gguf) {
  const int64_t q = q_rows(), kv = kv_rows(), whole = q + 2 * kv;
  const auto add = [&](Linear& member, const char* name, int64_t before, int64_t rows,
                       RowOrder order) {
    auto& slot = s.add(member, name, rows, dim)
                     .in_hf(hf, order.inside(before / turns, whole).taking_turns(turns, rows))
                     .with(bias);
    if (one_in_gguf) slot.in_gguf("attn_qkv", order.inside(before, whole));
  };
  add(w.q, "attn_q", 0, q, halves());
  add(w.k, "attn_k", q, kv, halves());
  add(w.v, "attn_v", q + kv, kv, {});
}

bool Decoder::stretch_rope(RopeScaling kind, double factor) {
  if (rope.dim == 0) return false;
  RopeSpec fresh;
  fresh.dim = rope.dim, fresh.theta = rope.theta, fresh.temperature = rope.temperature;
  fresh.scaling = kind, fresh.factor = factor, fresh.original_context = context;
  context = std::min(int64_t(double(context) * factor), int64_t{1} << 26);
  fresh.context = context;
  rope = fresh;
  return true;
}

std::array<Slots::Slot*, 2> Decoder::head_norm_slots(Slots& s, AttentionWeights& w, RowOrder gguf,
                                                     bool whole) {
  const auto norm = [&](Linear& member, const char* name, const char* hf, int64_t of_all) {
    return &s.add(member, name, 1, whole ? of_all : head_dim).in_hf(hf, halves()).in_gguf(gguf);
  };
  return {norm(w.q_norm, "attn_q_norm", "self_attn.q_norm", q_rows()),
          norm(w.k_norm, "attn_k_norm", "self_attn.k_norm", kv_rows())};
}

void Decoder::gated_slots(Slots& s, GatedWeights& w, const std::array<const char*, 3>& hf,
                          Bias bias) {
  s.add(w.gate, "ffn_gate", ffn, dim).in_hf(hf[0]).with(bias);
  s.add(w.up, "ffn_up", ffn, dim).in_hf(hf[1]).with(bias);
  s.add(w.down, "ffn_down", dim, ffn).in_hf(hf[2]).with(bias);
}

void Decoder::gate_up_slots(Slots& s, GatedWeights& w) {
  const auto of_both = [&](Linear& member, const char* name, int64_t first) {
    const RowOrder order = part(first, 2 * ffn);
    s.add(member, name, ffn, dim).in_hf("mlp.gate_up_proj", order).in_gguf("ffn_up", order);
  };
  of_both(w.gate, "ffn_gate", 0);
  of_both(w.up, "ffn_up", ffn);
  s.add(w.down, "ffn_down", dim, ffn).in_hf("mlp.down_proj");
}

void Decoder::token_slot(Slots& s, const char* in_hf) {
  s.hf_prefix = "model.";
  s.add(token_embd, "token_embd", vocab, dim).in_hf(in_hf).as(Role::token_table);
}

void Decoder::rope_freqs_slot(Slots& s) {
  if (rope.dim > 0) s.add(rope_freqs, "rope_freqs", 1, rope.dim / 2).optional();
}

Slots::Slot& Decoder::end_slots(Slots& s, const char* norm, Bias bias, const char* head) {
  s.after_layers();
  rope_freqs_slot(s);
  auto& last_norm = s.add(output_norm, "output_norm", 1, dim).in_hf(norm).with(bias);
  s.add(output, "output", vocab, dim).in_hf(head).as(Role::head).with(head_bias).optional();
  return last_norm;
}

ValueId Decoder::embedding(Graph& g) const {
  const ValueId x = g.get_rows(*token_embd.weight);
  return embedding_scale == 1 ? x : g.scale(x, embedding_scale);
}

ValueId Decoder::residual(Graph& g, ValueId x, ValueId y) const {
  return g.add(x, residual_scale == 1 ? y : g.scale(y, residual_scale));
}

ValueId Decoder::attention(Graph& g, ValueId n, const AttentionWeights& w, int layer) const {
  const auto clipped = [&](const Linear& part) {
    const ValueId y = linear(g, n, part);
    return clip > 0 ? g.clip(y, clip) : y;
  };
  ValueId q = clipped(w.q), k = clipped(w.k);
  const ValueId v = clipped(w.v);
  const auto normed = [&](ValueId x, const Linear& norm, int n) {
    if (!norm.weight) return x;
    return g.rms_norm(x, *norm.weight, eps, norm.weight->info.cols == head_dim ? n : 1);
  };
  q = normed(q, w.q_norm, heads), k = normed(k, w.k_norm, kv_heads);
  return linear(g, attention_of(g, q, k, v, layer), w.output);
}

std::vector<Decoder::KeyFacts> Decoder::key_facts() const {
  std::vector<KeyFacts> all(static_cast<size_t>(n_layers));
  for (const BoundWeight& w : weights) {
    int layer = 0, end = 0;
    const std::string& name = w.weight->info.name;
    if (std::sscanf(name.c_str(), "layer.%d.%n", &layer, &end) != 1 || end == 0 || layer < 0 ||
        layer >= int(n_layers) || w.weight->info.format != Format::f32 || w.weight->info.rows != 1)
      continue;
    KeyFacts& facts = all[size_t(layer)];
    const std::string_view rest = std::string_view(name).substr(size_t(end));
    const int64_t cols = w.weight->info.cols;
    const auto* numbers = reinterpret_cast<const float*>(w.weight->data);
    if (rest == "attn_k.bias" && cols == kv_rows()) facts.k_bias = numbers;
    if (rest == "attn_q.bias" && cols == q_rows()) facts.q_bias = numbers;
    if (rest.starts_with("attn_k_norm")) facts.k_norm = cols == head_dim ? numbers : nullptr;
    if (rest.starts_with("attn_q_norm")) facts.q_norm = cols == head_dim ? numbers : nullptr;
  }
  return all;
}

void Decoder::KeyRow::set(const char* name, int layer) {
  weight = {{fmt::format("layer.{}.{}", layer, name), Format::f32, 1, int64_t(numbers.size())},
            reinterpret_cast<const std::byte*>(numbers.data())};
}

void Decoder::fit_keys() {
  key_centres_.assign(size_t(n_layers), {}), key_scales_.assign(size_t(n_layers), {});
  const bool normed = std::ranges::any_of(weights, [](const BoundWeight& w) {
    return w.weight->info.name.find(".attn_k_norm") != std::string::npos;
  });
  const std::vector<KeyFacts> all = key_facts();
  for (int layer = 0; layer < int(n_layers); ++layer) {
    const KeyFacts& facts = all[size_t(layer)];
    const bool biased = facts.k_bias && !normed && clip == 0;  // those come after the bias
    if (biased && score_cap == 0 && !sinks_of(layer)) centre_keys(layer, facts.k_bias);
    if (head_dim % 2 == 0 && (normed ? facts.k_norm && facts.q_norm : biased && facts.q_bias))
      scale_keys(layer, facts);
  }
}

// A key is R_p (W x + b), where R_p rotates by the angles of position p. Qwen 2's b has channels of
// more than 100 next to channels of 5, which leaves the others few digits of a short format. The
// large ones are in the slowest pairs of channels. There R_p b hardly depends on p, so its mean is
// subtracted from all keys. In a fast pair the mean is near zero and changes nothing.
void Decoder::centre_keys(int layer, const float* bias) {
  KeyRow& centre = key_centres_[size_t(layer)];
  centre.numbers.assign(bias, bias + kv_rows());
  if (rope.dim > 0 && turns(layer))
    for (int64_t head = 0; head < kv_rows(); head += head_dim)
      rope_of(layer).average(&centre.numbers[size_t(head)], kCentredPositions);
  centre.set("key_centre", layer);
}

// The error of a score is the sum of query times rounding error over the channels, and the error is
// spread evenly. If a pair of channels is divided by s, the sum of squares is Q s^2 K / s^2, with
// the mean squares of queries and of centered keys. It is least where s^4 = K / Q in every pair. In
// layer 0 of Qwen 2.5 0.5B this is 1/25 of the error. K and Q come from the norm's weights, or from
// the biases. With biases, kInputs replaces the squares of W x, which are 1 to 5 in a pair.
void Decoder::scale_keys(int layer, const KeyFacts& facts) {
  constexpr double kInputs = 2;
  constexpr int kMostExponent = 8;
  const Weight* centre = key_centre(layer);
  const auto pair = [](const float* x, const float* minus = nullptr) {
    double sum = 0;
    for (int i = 0; i < 2; ++i) sum += double(x[i]) * x[i];
    for (int i = 0; minus && i < 2; ++i) sum -= double(minus[i]) * minus[i];
    return std::max(sum, 0.0);
  };
  KeyRow& row = key_scales_[size_t(layer)];
  row.numbers.assign(size_t(kv_rows()), 1.0f);
  const int64_t group = heads / kv_heads;
  bool all_one = true;
  for (int64_t c = 0; c + 1 < kv_rows(); c += 2) {
    const int64_t head = c / head_dim, in_head = c % head_dim;
    double k = kInputs, q = kInputs;
    if (facts.k_norm) {
      k = pair(facts.k_norm + in_head), q = pair(facts.q_norm + in_head);
    } else {
      // The mean of a rotating pair is shorter than the pair by what remains after it is
      // subtracted.
      k += pair(facts.k_bias + c,
                centre ? reinterpret_cast<const float*>(centre->data) + c : nullptr);
      for (int64_t i = 0; i < group; ++i)
        q += pair(facts.q_bias + (head * group + i) * head_dim + in_head) / double(group);
    }
    const double exponent = std::nearbyint(std::log2(k / q) / 4);
    if (!(std::fabs(exponent) <= kMostExponent)) continue;  // a pair of zeros
    row.numbers[size_t(c)] = row.numbers[size_t(c) + 1] = float(std::exp2(exponent));
    all_one = all_one && exponent == 0;
  }
  if (!all_one) row.set("key_scales", layer);
}

const Weight* Decoder::key_centre(int layer) const {
  return key_centres_.empty() ? nullptr : key_centres_[size_t(layer)].get();
}

const Weight* Decoder::key_scales(int layer) const {
  return key_scales_.empty() ? nullptr : key_scales_[size_t(layer)].get();
}

ValueId Decoder::attention_of(Graph& g, ValueId q, ValueId k, ValueId v, int layer) const {
  if (rope.dim > 0 && turns(layer)) {
    RopeSpec spec = rope_of(layer);
    q = g.rope(q, heads, head_dim, spec);
    spec.temperature = 0;
    k = g.rope(k, kv_heads, head_dim, spec);
  }
  const int seen = has_window(layer) ? window : 0;
  const StateId kv = g.state(Paged{kv_heads, head_dim, head_dim, seen, false, seen > 0 && chunked});
  const Weight* scales = key_scales(layer);
  g.kv_write(kv, k, v, key_centre(layer), scales);
  const float scale = score_scale > 0 ? score_scale : 1 / std::sqrt(float(head_dim));
  return g.attention(q, Attention{kv, 1, {}, scale, score_cap, max_bias}, sinks_of(layer), scales);
}

ValueId Decoder::gated(Graph& g, ValueId n, const GatedWeights& w, Activation by) {
  const ValueId gate = g.activate(by, linear(g, n, w.gate));
  return linear(g, g.mul(gate, linear(g, n, w.up)), w.down);
}

ValueId Decoder::plain(Graph& g, ValueId n, const PlainWeights& w) const {
  return linear(g, g.activate(activation, linear(g, n, w.up)), w.down);
}

void Decoder::logits(Graph& g, ValueId x) const {
  ValueId y = linear(g, x, output.weight ? output : token_embd);
  if (logit_scale != 1 || logit_divisor != 1) y = g.scale(y, logit_scale / logit_divisor);
  g.set_result(logit_cap > 0 ? g.soft_cap(y, logit_cap) : y, x);
}

}  // namespace chaski
