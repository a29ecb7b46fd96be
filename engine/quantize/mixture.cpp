// Follows llama.cpp's llama_tensor_get_type(), whose special cases are for 8 experts, for
// Falcon, and for models of 70B with 8 query heads for a key head.
#include "engine/quantize/mixture.h"

#include <algorithm>
#include <array>

#include "engine/passes/layer_of.h"
#include "engine/quantize/quantize.h"
#include "engine/quantize/weight_job.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

struct Mixture {
  std::string_view name;
  Format base;
};
constexpr std::array kMixtures = {
    Mixture{"Q2_K", Format::q2_k},     Mixture{"Q2_K_S", Format::q2_k},
    Mixture{"Q3_K_S", Format::q3_k},   Mixture{"Q3_K_M", Format::q3_k},
    Mixture{"Q3_K_L", Format::q3_k},   Mixture{"IQ4_XS", Format::iq4_xs},
    Mixture{"IQ4_NL", Format::iq4_nl}, Mixture{"Q4_K_S", Format::q4_k},
    Mixture{"Q4_K_M", Format::q4_k},   Mixture{"Q5_K_S", Format::q5_k},
    Mixture{"Q5_K_M", Format::q5_k}};

// Other names of llama-quantize. They are in capitals: q4_k is the format.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

const Mixture* mixture_named(std::string_view name) {
  for (const auto& [alias, of] : kAliases)
    if (alias == name) name = of;
  std::string capitals(name);
  for (char& c : capitals) c = char(std::toupper(static_cast<unsigned char>(c)));
  for (const Mixture& m : kMixtures)
    if (m.name == name || (m.name == capitals && m.name.find("_K_") != m.name.npos)) return &m;
  return nullptr;
}

// A weight in a layer, and what the choice depends on.
struct Place {
  int layer, layers;
  bool falcon, eight_experts, few_keys;  // few_keys: at least 4 query heads for a key head
  bool calibrated;

  bool first(int part) const { return layer < layers / part; }
  bool more_bits() const {
    return first(8) || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
  }
};

Format of_values(std::string_view mixture, Format base, const Place& at) {
  if (at.eight_experts) return Format::q8;
  if (mixture == "Q2_K") return at.few_keys ? Format::q4_k : Format::q3_k;
  if (mixture == "Q2_K_S" && at.few_keys) return Format::q4_k;
  if (mixture == "Q3_K_M") return at.layer < 2 ? Format::q5_k : Format::q4_k;
  if (mixture == "Q3_K_L") return Format::q5_k;
  if (mixture.starts_with("IQ4") && at.few_keys) return Format::q5_k;
  if (mixture.ends_with("_M") && at.more_bits()) return Format::q6_k;
  if (mixture == "Q4_K_S" && at.layer < 4) return Format::q5_k;
  return base;
}

Format of_down(std::string_view mixture, Format base, const Place& at) {
  if (mixture == "Q2_K") return Format::q3_k;
  if (mixture == "Q2_K_S" && at.first(8)) return Format::q4_k;
  if (mixture == "Q3_K_M")
    return at.first(16) ? Format::q5_k : !at.falcon || at.more_bits() ? Format::q4_k : Format::q3_k;
  if (mixture == "Q3_K_L") return at.falcon ? Format::q4_k : Format::q5_k;
  if (mixture == "Q4_K_M" && at.falcon)
    return at.first(16) ? Format::q6_k : at.more_bits() ? Format::q5_k : Format::q4_k;
  if (mixture.ends_with("_M") && at.more_bits()) return Format::q6_k;
  if (mixture.starts_with("IQ4") && at.first(8) && !at.calibrated) return Format::q5_k;
  if (mixture == "Q4_K_S" && !at.falcon && at.first(8)) return Format::q5_k;
  return base;
}

Format of_outputs(std::string_view mixture, Format base, const Place& at) {
  if (at.falcon) return mixture == "Q3_K_L" ? Format::q4_k : base;
  if (at.eight_experts)
    return mixture == "Q3_K_L" || mixture == "Q2_K_S" || base == Format::q5_k ? base : Format::q5_k;
  if (mixture == "Q2_K") return Format::q3_k;
  if (mixture == "Q3_K_M") return Format::q4_k;
  return mixture == "Q3_K_L" ? Format::q5_k : base;
}

Format of_joined(std::string_view mixture, Format base) {
  if (mixture == "Q3_K_M" || mixture == "Q3_K_L") return Format::q4_k;
  return mixture == "Q4_K_M" ? Format::q5_k : mixture == "Q5_K_M" ? Format::q6_k : base;
}

Format of_layer(std::string_view mixture, Format base, Projection projection, const Place& at) {
  switch (projection) {
    case Projection::values:
      return of_values(mixture, base, at);
    case Projection::keys:
      return at.eight_experts ? Format::q8 : base;
    case Projection::down:
      return of_down(mixture, base, at);
    case Projection::outputs:
      return of_outputs(mixture, base, at);
    case Projection::qkv:
      return of_joined(mixture, base);
    case Projection::other:
      return base;
  }
  return base;
}

// chaski's own format of about as many bits.
Format own(Format gguf) {
  switch (gguf) {
    case Format::q2_k:
      return Format::q2;
    case Format::q3_k:
      return Format::q3;
    case Format::q4_k:
      return Format::q4h;
    case Format::q5_k:
      return Format::q5;
    case Format::q6_k:
      return Format::q6;
    case Format::iq4_xs:
    case Format::iq4_nl:
      return Format::q4;
    default:
      return gguf;
  }
}

bool may_choose(const WeightJob& job) {
  return !job.slot.gguf.empty() && job.from().tiled() && !keeps_format(job.slot.role);
}

}  // namespace

std::vector<std::string> mixture_names() {
  std::vector<std::string> names;
  for (const Mixture& m : kMixtures) names.emplace_back(m.name);
  return names;
}

std::vector<std::string> types_and_mixtures() {
  std::vector<std::string> names = quantize_types();
  for (std::string& name : mixture_names()) names.push_back(std::move(name));
  for (const auto& [alias, of] : kAliases) names.emplace_back(alias);
  return names;
}

bool is_written(Format format) { return can_encode(format); }

std::optional<Format> base_of_mixture(std::string_view name) {
  const Mixture* mixture = mixture_named(name);
  return mixture ? std::optional(mixture->base) : std::nullopt;
}

std::optional<Recipe> recipe_of_mixture(std::string_view name, const ModelSource& in, Format type,
                                        bool calibrated) {
  const Mixture* mixture = mixture_named(name);
  if (!mixture) return {};
  const WeightJobs jobs = jobs_of(in);
  const bool head =
      std::ranges::any_of(jobs, [](const auto& job) { return job.slot.role == Role::head; });
  const auto rows_of = [&](const char* name) {
    const auto job = std::ranges::find(jobs, name, [](const auto& j) { return j.from().name; });
    return job == jobs.end() ? 0 : job->from().rows;
  };
  Place at{};
  at.layers = int(model_of(in.meta)->n_layers);
  at.falcon = in.meta.str("general.architecture", "") == "falcon";
  at.eight_experts = in.meta.integer("model.expert_count", 0) == 8;
  at.few_keys = rows_of("layer.0.attn_q") >= 4 * std::max<int64_t>(1, rows_of("layer.0.attn_k"));
  at.calibrated = calibrated;
  const bool gguf = info(type).gguf_type >= 0;
  Recipe recipe;
  for (const WeightJob& job : jobs) {
    if (!may_choose(job)) continue;
    const TensorInfo& tensor = job.from();
    const bool makes_logits =
        job.slot.role == Role::head || (job.slot.role == Role::token_table && !head);
    Format to = mixture->base;
    if (makes_logits)
      to = at.falcon || (gguf && tensor.cols % info(mixture->base).block != 0) ? Format::q8
                                                                               : Format::q6_k;
    else if (at.layer = layer_of(job.slot.gguf); at.layer >= 0)
      to = of_layer(mixture->name, to, job.slot.projection, at);
    if (!gguf) to = own(to);
    if (tensor.cols % info(to).block != 0) to = stand_in(to, tensor.cols);
    // A weight that has no more bits than that keeps its format.
    recipe[tensor.name] = info(tensor.format).bits() > info(to).bits() ? to : tensor.format;
  }
  return recipe;
}

}  // namespace chaski
