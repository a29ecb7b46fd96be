#include "main/flags/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "engine/measure/kv_loss.h"
#include "engine/quantize/mixture.h"
#include "engine/session/engine.h"
#include "main/flags/values.h"

namespace chaski {

namespace {

using Line = std::pair<std::string_view, std::string_view>;

constexpr Line kOwn[] = {
    {"q2", "2.5 bits: the smallest, for large models; use it with --calibrate"},
    {"q3", "3.25 bits: for small files; about 3 times the squared error of q4"},
    {"q4", "4.25 bits: the default, small and fast"},
    {"q5", "5.25 bits: about a quarter of the squared error of q4; slower than q4"},
    {"q6", "6.25 bits: for heads and embeddings, and for files close to the original"},
    {"q8", "8.5 bits: answers hardly differ from f16; the same as GGUF's Q8_0"},
};

constexpr Line kOfGguf[] = {
    {"q2_k", "2.6 bits: GGUF's Q2_K"},
    {"q3_k", "3.4 bits: GGUF's Q3_K"},
    {"iq4_xs", "4.25 bits: GGUF's IQ4_XS, with levels that are denser near 0"},
    {"q4_0", "4.5 bits: GGUF's Q4_0, which nearly every program reads"},
    {"q4_k", "4.5 bits: GGUF's Q4_K, with a scale and a minimum for 32 weights"},
    {"iq4_nl", "4.5 bits: GGUF's IQ4_NL, which is iq4_xs in blocks of 32"},
    {"q4_1", "5 bits: GGUF's Q4_1, which is q4_0 with a minimum"},
    {"q5_0", "5.5 bits: GGUF's Q5_0, with twice the levels of q4_0"},
    {"q5_k", "5.5 bits: GGUF's Q5_K, with twice the levels of q4_k"},
    {"q5_1", "6 bits: GGUF's Q5_1, with twice the levels of q4_1"},
    {"q6_k", "6.6 bits: GGUF's Q6_K"},
};

constexpr Line kSpecial[] = {
    {"tq2_0",
     "2.1 bits: GGUF's TQ2_0: -1, 0 or 1 and a scale; for models trained with such weights"},
    {"mxfp4", "4.25 bits: floats of 4 bits (e2m1) and a power of two as scale; gpt-oss's format"},
    {"q4t", "4.25 bits: trellis codes with 32 levels; often 10 to 20% less error than q4; slower"},
    {"nf4", "4.5 bits: quantiles of the normal distribution, as in QLoRA; slow"},
    {"q4h", "4.5 bits: q4 with a scale for 16 weights; 25% less error than q4"},
    {"q8f", "9 bits: q8 with scales of 32 bits, as in llama2.c"},
    {"f16", "16 bits: half-precision floats, up to 65504"},
    {"bf16",
     "16 bits: floats with the range of f32 and fewer digits; most models are trained in it"},
    {"f32", "32 bits: lossless"},
};

constexpr Line kMixtures[] = {
    {"Q2_K", "Q2_K; Q3_K or Q4_K in attention values, outputs and ffn_down"},
    {"Q2_K_S", "Q2_K; Q4_K in the first ffn_down"},
    {"Q3_K_S", "Q3_K"},
    {"Q3_K_M",
     "Q3_K; Q4_K in attention values, outputs and ffn_down, Q5_K in the first layers; also called "
     "Q3_K"},
    {"Q3_K_L", "Q3_K; Q5_K in attention values, outputs and ffn_down"},
    {"IQ4_XS", "IQ4_XS; Q5_K in the first ffn_down without a calibration"},
    {"IQ4_NL", "IQ4_NL; Q5_K in the first ffn_down without a calibration"},
    {"Q4_0", "Q4_0; Q4_1 in the first ffn_down with a calibration"},
    {"Q4_K_S", "Q4_K; Q5_K in attention values and ffn_down of the first layers"},
    {"Q4_K_M",
     "Q4_K; Q6_K in attention values and ffn_down of half of the layers; also called Q4_K"},
    {"Q4_1", "Q4_1"},
    {"Q5_0", "Q5_0; Q5_1 in the first ffn_down with a calibration"},
    {"Q5_K_S", "Q5_K"},
    {"Q5_K_M",
     "Q5_K; Q6_K in attention values and ffn_down of half of the layers; also called Q5_K"},
    {"Q5_1", "Q5_1"},
    {"Q6_K", "Q6_K"},
    {"Q8_0", "Q8_0, the head too"},
};

// Mixtures of llama-quantize whose formats chaski reads only, each with its base format.
constexpr Line kUnwrittenMixtures[] = {{"iq2_m", "iq2_s"}, {"iq3_xs", "iq3_s"}, {"iq3_m", "iq3_s"}};

using Rows = std::vector<std::pair<std::string, std::string>>;

Rows rows_of(std::span<const Line> lines) { return {lines.begin(), lines.end()}; }

Rows rows_named(const Rows& all, const std::vector<std::string>& names) {
  Rows rows;
  for (const std::string& name : names) {
    const auto at = std::ranges::find(all, name, &Rows::value_type::first);
    ENSURE(at != all.end(), "every format that can be chosen has a line of help");
    rows.push_back(*at);
  }
  return rows;
}

}  // namespace

std::vector<Manual::Table> weight_format_tables() {
  return {
      {"chaski's own formats", rows_of(kOwn)},
      {"GGUF's formats, for files that other programs read", rows_of(kOfGguf)},
      {"Mixtures of llama-quantize, in GGUF's formats; the head is in Q6_K", rows_of(kMixtures)},
      {"Special formats", rows_of(kSpecial)}};
}

std::vector<std::string> own_weight_formats() {
  std::vector<std::string> names;
  for (const Line& line : kOwn) names.emplace_back(line.first);
  return names;
}

std::string type_instead(std::string text) {
  const std::string name = small(text);
  const auto mixture = std::ranges::find(kUnwrittenMixtures, name, &Line::first);
  const auto format =
      format_named(mixture == std::end(kUnwrittenMixtures) ? name : std::string(mixture->second));
  if (name.ends_with(".quipu") || name.ends_with(".gguf"))
    return fmt::format(
        "a type; if it is the output file, it comes before the type: chaski "
        "quantize IN {} q4",
        text);
  if (!format || is_written(*format)) return {};
  std::string nearest = "tq2_0";  // other ternary weights
  if (!name.starts_with("tq")) {
    const std::vector<std::string> names = mixture_names();
    nearest = *std::ranges::min_element(names, {}, [&](const std::string& one) {
      return std::fabs(info(*base_of_mixture(one)).bits() - info(*format).bits());
    });
  }
  return fmt::format(
      "a type that chaski writes, such as {} (it reads {}); chaski help formats lists all", nearest,
      info(*format).name);
}

bool is_name_of_type(std::string text) {
  text = small(text);
  if (format_named(text)) return true;
  const size_t digit = text.starts_with("iq") || text.starts_with("tq") ? 2 : 1;
  return text.size() > digit && text[digit - 1] == 'q' && text[digit] >= '1' &&
         text[digit] <= '8' && text.find_first_not_of("0123456789_klmsxn", digit) == text.npos;
}

Rows weight_formats(const std::vector<std::string>& names) {
  Rows all;
  for (const Manual::Table& table : weight_format_tables())
    all.insert(all.end(), table.rows.begin(), table.rows.end());
  return rows_named(all, names);
}

Rows kv_formats(const std::vector<std::string>& names) {
  Rows rows;
  for (const std::string& name : names) {
    const Format format = *format_named(name);
    const std::string loss = kv_loss(format);
    rows.emplace_back(name,
                      kv_help(format) + (loss.empty() ? "" : "; KL divergence from f16 ") + loss);
  }
  return rows;
}

}  // namespace chaski
