// Follows llama.cpp's llama_tensor_get_type(), whose special cases are for 8 experts, for
// Falcon, and for models of 70B with 8 query heads for a key head. scripts/check/check_mixtures.py
// compares the formats of all golden models.
#include "engine/quantize/mixture.h"

#include <algorithm>
#include <array>
#include <set>

#include "engine/passes/layer_of.h"
#include "engine/quantize/quantize.h"
#include "engine/quantize/weight_job.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

struct Mixture {
  std::string_view name;
  Format base;
  int file_type;
};
constexpr std::array kMixtures = {
    Mixture{"Q2_K", Format::q2_k, 10},     Mixture{"Q2_K_S", Format::q2_k, 21},
    Mixture{"Q3_K_S", Format::q3_k, 11},   Mixture{"Q3_K_M", Format::q3_k, 12},
    Mixture{"Q3_K_L", Format::q3_k, 13},   Mixture{"IQ4_XS", Format::iq4_xs, 30},
    Mixture{"IQ4_NL", Format::iq4_nl, 25}, Mixture{"Q4_0", Format::q4_0, 2},
    Mixture{"Q4_K_S", Format::q4_k, 14},   Mixture{"Q4_K_M", Format::q4_k, 15},
    Mixture{"Q4_1", Format::q4_1, 3},      Mixture{"Q5_0", Format::q5_0, 8},
    Mixture{"Q5_K_S", Format::q5_k, 16},   Mixture{"Q5_K_M", Format::q5_k, 17},
    Mixture{"Q5_1", Format::q5_1, 9},      Mixture{"Q6_K", Format::q6_k, 18},
    Mixture{"Q8_0", Format::q8, 7}};

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

// What the choice depends on, of the model and of a weight's place in it.
struct Place {
  int64_t layers, experts;
  bool falcon, few_keys, of_70b;  // few_keys: at least 4 query heads for a key head
  bool calibrated;
  int layer = 0;  // of value matrices: among the layers that have one, and `layers` counts these

  bool eight_experts() const { return experts == 8; }
  bool first(int part) const { return layer < layers / part; }
  // The first and the last eighth of the layers, and every third layer between.
  bool more_bits() const {
    return first(8) || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
  }
};

Format of_values(std::string_view mixture, Format base, const Place& at) {
  if (at.eight_experts()) return Format::q8;
  if (mixture == "Q2_K") base = at.few_keys ? Format::q4_k : Format::q3_k;
  if (mixture == "Q2_K_S" && at.few_keys) base = Format::q4_k;
  if (mixture == "Q3_K_M") base = at.layer < 2 ? Format::q5_k : Format::q4_k;
  if (mixture == "Q3_K_L") base = Format::q5_k;
  if (mixture.starts_with("IQ4") && at.few_keys) base = Format::q5_k;
  if (mixture.ends_with("_M") && mixture != "Q3_K_M" && at.more_bits()) base = Format::q6_k;
  if (mixture == "Q4_K_S" && at.layer < 4) base = Format::q5_k;
  return at.of_70b && (base == Format::q3_k || base == Format::q4_k) ? Format::q5_k : base;
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
  if (mixture == "Q4_0" && at.first(8) && at.calibrated) return Format::q4_1;
  if (mixture == "Q5_0" && at.first(8) && at.calibrated) return Format::q5_1;
  return base;
}

Format of_outputs(std::string_view mixture, Format base, const Place& at) {
  if (at.falcon) return mixture == "Q3_K_L" ? Format::q4_k : base;
  if (at.eight_experts()) {
    constexpr std::array kRaised = {"Q2_K",   "Q3_K_S", "Q3_K_M", "IQ4_XS",
                                    "IQ4_NL", "Q4_K_S", "Q4_K_M"};
    return std::ranges::count(kRaised, mixture) > 0 ? Format::q5_k : base;
  }
  if (mixture == "Q2_K") return Format::q3_k;
  if (mixture == "Q3_K_M") return Format::q4_k;
  return mixture == "Q3_K_L" ? Format::q5_k : base;
}

Format of_layer(std::string_view mixture, Format base, Projection projection, const Place& at) {
  switch (projection) {
    case Projection::values:
    case Projection::qkv:
      return of_values(mixture, base, at);
    case Projection::keys:
      return at.eight_experts() ? Format::q8 : base;
    case Projection::down:
      return of_down(mixture, base, at);
    case Projection::outputs:
      return of_outputs(mixture, base, at);
    case Projection::other:
    case Projection::small:
      return base;
  }
  return base;
}

// llama-quantize's format for a weight whose columns do not fill the blocks of another. stand_in()
// differs in two: iq4_nl has as many bits as q4_0 and a smaller error.
Format llama_stand_in(Format type, int64_t cols) {
  const bool small = type == Format::q2_k || type == Format::q3_k;
  return small && cols % info(Format::q4_0).block == 0 ? Format::q4_0 : stand_in(type, cols);
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
    case Format::q4_0:
      return Format::q4;
    case Format::q4_1:
    case Format::q5_0:
      return Format::q5;
    case Format::q5_1:
      return Format::q6;
    default:
      return gguf;
  }
}

Place place_of(const Metadata& meta, bool calibrated) {
  // The number of the first layer, if each layer has one.
  const auto first_of = [&](const char* key) {
    const Value* value = meta.find(key);
    const auto* list = value ? std::get_if<Ints>(&value->data) : nullptr;
    return !list ? meta.integer(key, 0) : list->empty() ? 0 : (*list)[0];
  };
  const std::string architecture = meta.str("general.architecture", "");
  const int64_t heads = first_of("model.head_count"), key_heads = first_of("model.head_count_kv"),
                layers = model_of(meta)->n_layers;
  const bool may_be_70b = architecture == "qwen2" || architecture == "deci" ||
                          architecture == "olmo" || (architecture == "llama" && heads != key_heads);
  return {layers,
          meta.integer("model.expert_count", 0),
          architecture == "falcon",
          key_heads > 0 && heads / key_heads >= 4,
          architecture == "jais2" ? layers == 68 : may_be_70b && layers == 80,
          calibrated};
}

bool is_of_values(const WeightJob& job) {
  return job.slot.projection == Projection::values || job.slot.projection == Projection::qkv;
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

int file_type_of(std::string_view mixture, std::optional<Format> otherwise) {
  constexpr std::pair<Format, int> kTypes[] = {
      {Format::f32, 0},     {Format::f16, 1},   {Format::q4_0, 2},  {Format::q4_1, 3},
      {Format::q8, 7},      {Format::q5_0, 8},  {Format::q5_1, 9},  {Format::q3_k, 11},
      {Format::q4_k, 14},   {Format::q5_k, 16}, {Format::q6_k, 18}, {Format::iq4_nl, 25},
      {Format::iq4_xs, 30}, {Format::bf16, 32}};
  if (const Mixture* const known = mixture_named(mixture)) return known->file_type;
  const auto at = std::ranges::find(kTypes, otherwise, &std::pair<Format, int>::first);
  return at == std::end(kTypes) ? -1 : at->second;
}

std::optional<Format> base_of_mixture(std::string_view name) {
  const Mixture* mixture = mixture_named(name);
  return mixture ? std::optional(mixture->base) : std::nullopt;
}

std::optional<Recipe> recipe_of_mixture(std::string_view name, const WeightJobs& jobs,
                                        const Metadata& meta, Format type, bool calibrated) {
  const Mixture* mixture = mixture_named(name);
  if (!mixture) return {};
  const bool head =
      std::ranges::any_of(jobs, [](const auto& job) { return job.slot.role == Role::head; });
  const Place model = place_of(meta, calibrated);
  // The layers with a matrix of values, which llama.cpp counts.
  std::set<int> with_values;
  for (const WeightJob& job : jobs)
    if (const int layer = layer_of(job.slot.gguf); layer >= 0 && is_of_values(job))
      with_values.insert(layer);
  const bool gguf = info(type).gguf_type >= 0;
  Recipe recipe;
  for (const WeightJob& job : jobs) {
    if (!may_choose(job)) continue;
    const TensorInfo& tensor = job.from();
    const bool makes_logits =
        job.slot.role == Role::head || (job.slot.role == Role::token_table && !head);
    if (job.slot.projection == Projection::small) {
      recipe[tensor.name] = tensor.format;
      continue;
    }
    Format to = mixture->base;
    if (makes_logits) {
      if (to != Format::q8)
        to =
            model.falcon || (gguf && tensor.cols % info(to).block != 0) ? Format::q8 : Format::q6_k;
    } else if (Place at = model; (at.layer = layer_of(job.slot.gguf)) >= 0) {
      if (is_of_values(job)) {
        at.layer = int(std::distance(with_values.begin(), with_values.find(at.layer)));
        at.layers = std::ssize(with_values);
      }
      to = of_layer(mixture->name, to, job.slot.projection, at);
    }
    if (!gguf) to = own(to);
    if (tensor.cols % info(to).block != 0) to = llama_stand_in(to, tensor.cols);
    // A weight that has no more bits than that keeps its format.
    recipe[tensor.name] = info(tensor.format).bits() > info(to).bits() ? to : tensor.format;
  }
  return recipe;
}

}  // namespace chaski
