// Gemma 3n, text. It has several residual streams: a layer computes on one, predicts the others and
// corrects them (AltUp, Baykal et al. 2023). A narrow low-rank path runs parallel to attention
// (Laurel, Menghani et al. 2024). In the first layers only the largest few values of a row pass the
// gates.
#include <algorithm>

#include "models/blocks/gemma_n.h"

namespace chaski {

namespace {

// The x with P(X < x) = p for a standard normal X.
double normal_quantile(double p) {
  if (p <= 0) return -INFINITY;
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

// Practically no epsilon, for norms that have none in the original.
constexpr float kNoEps = 1e-12f;

class Gemma3n : public GemmaN {
  struct Mixed : Layer {
    Linear router, router_norm, predict, correct, correct_scale;  // AltUp
    Linear laurel_left, laurel_right, laurel_norm;
    std::vector<float>
        below;  // minus the number of standard deviations above the mean that opens a gate
    Weight cutoff, one, zero;  // view of `below`; ones and zeros for the norms of gates
  };
  std::vector<Mixed> layers;
  std::vector<Linear> projections, unembed_projections;  // of all streams but the first
  int64_t streams = 0, active = 0, laurel_rank = 0;
  std::vector<float> closed;  // the fraction of each layer's gates that is closed
  std::vector<float>
      deviations;  // the same as a bound in standard deviations above the mean; -inf: none
  std::vector<float> one_, zero_;
  Weight ones_;

  void keys(Keys& k) override {
    const auto same = [this](int64_t n) { return Given(in_all_layers(n)); };
    layer_keys(k, 5, same, same);
    for (auto [name, usual] : {std::pair{"head_dim", 256},
                               {"sliding_window", 512},
                               {"kv_readers", 15},
                               {"layer_input_length", 256}})
      k[name].hf_otherwise(int64_t{usual});
    k["logit_soft_cap"].hf_otherwise(30.0).hf_null_is(0.0);
    k.integer(streams, "altup_inputs")
        .in_gguf("altup.num_inputs")
        .in_hf("altup_num_inputs")
        .range(2, 7)
        .otherwise(int64_t{4});
    k.integer(active, "altup_active")
        .in_gguf("altup.active_idx")
        .in_hf("altup_active_idx")
        .range(0, 6)
        .otherwise(int64_t{0});
    k.integer(laurel_rank, "laurel_rank")
        .in_gguf_always(int64_t{64})
        .in_hf("laurel_rank")
        .range(2, 1 << 20)
        .otherwise(int64_t{64});
    const auto count = [this] { return n_layers; };
    k.numbers(closed, "closed_gates", count)
        .not_in_gguf()
        .in_hf("activation_sparsity_pattern")
        .hf_otherwise([this] {
          std::vector<double> usual(size_t(n_layers), 0);
          if (n_layers > 10) std::fill_n(usual.begin(), 10, 0.95);
          return Given(usual);
        })
        .optional();
    k.numbers(deviations, "gate_deviations", count)
        .in_gguf("activation_sparsity_scale")
        .otherwise([this]() -> std::optional<Given> {
          if (closed.empty()) return std::nullopt;
          std::vector<double> list;
          for (float part : closed) list.push_back(normal_quantile(part));
          return list;
        });
    k.hf_expects({"altup_correct_scale"}, {true});
  }

  void agree(const std::string& file) const override {
    GemmaN::agree(file);
    if (active >= streams)
      fail(Exit::bad_file, "{}: model.altup_active is {}, expected less than altup_inputs, {}",
           file, active, streams);
    if (own_width == 0)
      fail(Exit::bad_file, "{}: model.layer_input_length is 0, expected 1 or more", file);
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    table_slots(s);
    const int64_t others = streams > 0 ? streams - 1 : 0;
    projections.resize(size_t(others)), unembed_projections.resize(size_t(others));
    for (int64_t i = 0; i < others; ++i) {
      const auto add = [&](Linear& member, const char* name, const char* hf) {
        s.add(member, fmt::format("{}.{}", name, i), dim, dim)
            .in_hf(fmt::format("{}.{}", hf, i))
            .in_gguf(name, part(i * dim, others * dim))
            .planes_in_gguf(others)
            .small();
      };
      add(projections[size_t(i)], "altup_proj", "altup_projections");
      add(unembed_projections[size_t(i)], "altup_unembd_proj", "altup_unembed_projections");
    }
    for (int64_t i = 0; i < n_layers; ++i) {
      Mixed& l = layers[size_t(i)];
      s.layer(i, "layers.");
      layer_slots(s, l, i);
      s.add(l.router, "altup_router", streams, dim).in_hf("altup.modality_router").small();
      s.add(l.router_norm, "altup_router_norm", 1, dim).in_hf("altup.router_norm");
      s.add(l.predict, "altup_predict_coef", streams * streams, streams)
          .in_hf("altup.prediction_coefs")
          .small();
      s.add(l.correct, "altup_correct_coef", streams, streams)
          .in_hf("altup.correction_coefs")
          .small();
      s.add(l.correct_scale, "altup_correct_scale", 1, dim)
          .in_hf("altup.correct_output_scale")
          .bare_in_hf();
      s.add(l.laurel_left, "laurel_l", laurel_rank, dim).in_hf("laurel.linear_left").small();
      s.add(l.laurel_right, "laurel_r", dim, laurel_rank).in_hf("laurel.linear_right").small();
      s.add(l.laurel_norm, "laurel_post_norm", 1, dim).in_hf("laurel.post_laurel_norm");
    }
    head_slots(s);
  }

  void bound(const std::string& file) override {
    GemmaN::bound(file);
    const auto over = [](const char* name, const std::vector<float>& floats, int64_t n) {
      return Weight{{name, Format::f32, 1, n}, reinterpret_cast<const std::byte*>(floats.data())};
    };
    const int64_t widest = *std::max_element(layer_ffn.begin(), layer_ffn.end());
    one_.assign(size_t(std::max(dim, widest)), 1.0f), zero_.assign(size_t(widest), 0.0f);
    ones_ = over("ones", one_, dim);
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!std::isfinite(deviations[i])) continue;
      layers[i].below.assign(size_t(layer_ffn[i]), -deviations[i]);
      layers[i].cutoff = over("cutoff", layers[i].below, layer_ffn[i]);
      layers[i].one = over("ones_of_gates", one_, layer_ffn[i]);
      layers[i].zero = over("zeros_of_gates", zero_, layer_ffn[i]);
    }
  }

  // The root mean square of each row of x, (tokens, 1).
  ValueId magnitude(Graph& g, ValueId x) const {
    return g.mean_product(x, g.rms_norm(x, ones_, kNoEps));
  }
  // x scaled to this magnitude.
  ValueId as_large(Graph& g, ValueId x, ValueId magnitude) const {
    return g.blend({g.rms_norm(x, ones_, kNoEps)}, magnitude);
  }

  ValueId modalities(Graph& g, ValueId x, const Mixed& l) const {
    const ValueId n = g.scale(rms_norm(g, x, l.router_norm), 1 / float(dim));
    return g.soft_cap(linear(g, n, l.router), 1);  // tanh
  }
  std::vector<ValueId> predictions(Graph& g, const std::vector<ValueId>& x, const Mixed& l) const {
    const ValueId coefs = linear(g, modalities(g, x[size_t(active)], l), l.predict);
    std::vector<ValueId> out;
    for (int64_t i = 0; i < streams; ++i)
      out.push_back(g.add(x[size_t(i)], g.blend(x, coefs, i * streams)));
    return out;
  }
  std::vector<ValueId> corrected(Graph& g, std::vector<ValueId> predicted, ValueId made,
                                 const Mixed& l) const {
    const ValueId coefs = linear(g, modalities(g, made, l), l.correct),
                  difference = g.add(made, g.scale(predicted[size_t(active)], -1));
    for (int64_t i = 0; i < streams; ++i)
      predicted[size_t(i)] =
          g.add(predicted[size_t(i)], g.add(difference, g.blend({difference}, coefs, i)));
    return predicted;
  }

  // max(0, x - (mean + d * deviation)), row by row, with the layer's d in standard deviations.
  ValueId largest(Graph& g, ValueId x, const Mixed& l) const {
    const ValueId normed = g.layer_norm(x, l.one, l.zero, kNoEps),
                  above = g.activate(Activation::relu, g.layer_norm(x, l.one, l.cutoff, kNoEps));
    return g.blend({above}, g.mean_product(x, normed));
  }
  ValueId feed(Graph& g, ValueId n, const Mixed& l) const {
    if (l.below.empty()) return gated(g, n, l.ffn, Activation::gelu);
    const ValueId gate = g.activate(Activation::gelu, largest(g, linear(g, n, l.ffn.gate), l));
    return linear(g, g.mul(gate, linear(g, n, l.ffn.up)), l.ffn.down);
  }

  void build(Graph& g) const override {
    const ValueId x = g.scale(g.get_rows(*token_embd.weight), std::sqrt(float(dim))),
                  size = magnitude(g, x), inputs = own_inputs(g, x);
    std::vector<ValueId> all{x};
    for (const Linear& w : projections) all.push_back(as_large(g, linear(g, x, w), size));
    std::vector<StateId> states;
    for (int i = 0; i < n_layers; ++i) all = through(g, all, i, inputs, states);

    for (ValueId& stream : all) stream = g.take_outputs(stream);
    const ValueId last_size = magnitude(g, all[0]);
    ValueId sum = all[0];
    for (size_t i = 1; i < all.size(); ++i)
      sum = g.add(sum, as_large(g, linear(g, all[i], unembed_projections[i - 1]), last_size));
    logits(g, rms_norm(g, g.scale(sum, 1 / float(streams)), output_norm));
  }

  std::vector<ValueId> through(Graph& g, const std::vector<ValueId>& all, int i, ValueId inputs,
                               std::vector<StateId>& states) const {
    const Mixed& l = layers[size_t(i)];
    const std::vector<ValueId> predicted = predictions(g, all, l);
    const ValueId x = predicted[size_t(active)], n = rms_norm(g, x, l.attn_norm);
    const ValueId narrow = linear(g, linear(g, n, l.laurel_left), l.laurel_right),
                  past = g.add(n, rms_norm(g, narrow, l.laurel_norm));
    const ValueId attended = g.add(x, rms_norm(g, attend(g, n, l, i, states), l.attn_outer_norm)),
                  mixed = g.scale(g.add(attended, past), std::sqrt(0.5f));
    const ValueId made = feed(g, rms_norm(g, mixed, l.ffn_norm), l);
    std::vector<ValueId> out =
        corrected(g, predicted, g.add(mixed, rms_norm(g, made, l.ffn_outer_norm)), l);
    // Multiplies by a weight for each channel: norms the row, then restores its magnitude.
    const ValueId first = out[size_t(active)];
    const ValueId scaled =
        g.blend({g.rms_norm(first, *l.correct_scale.weight, kNoEps)}, magnitude(g, first));
    const ValueId own = own_input(g, scaled, l, i, inputs);
    for (size_t s = 1; s < out.size(); ++s) out[s] = g.add(out[s], own);
    return out;
  }
};

}  // namespace

extern const Architecture kGemma3n;
const Architecture kGemma3n{
    "gemma3n", {"Gemma3nForCausalLM"}, make_model<Gemma3n>, {"gemma3n_text"}};

}  // namespace chaski
