#include "main/flags/formats.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "engine/session/engine.h"

namespace chaski {

namespace {

using Line = std::pair<std::string_view, std::string_view>;

constexpr Line kOfWeights[] = {
    {"tq2_0", "2.1 bits: -1, 0 or 1 under a scale for 256 weights; for models trained so"},
    {"q2", "2.5 bits: trellis codes; answers differ from the model's, less so with --calibrate"},
    {"q2_k", "2.6 bits: GGUF's Q2_K, for files that others read too"},
    {"q3", "3.25 bits: trellis codes, 16 levels, of which each weight has 8 by those before it"},
    {"q3_k", "3.4 bits: GGUF's Q3_K"},
    {"q4", "4.25 bits: 16 levels that sit closer near 0, a scale for 32 weights; the default"},
    {"q4t",
     "4.25 bits: trellis codes, 32 levels; mostly a tenth to a fifth less error than q4; slower"},
    {"iq4_xs", "4.25 bits: GGUF's IQ4_XS, levels that sit closer near 0"},
    {"mxfp4", "4.25 bits: floats of 4 bits (e2m1) under a power of two; gpt-oss comes so"},
    {"q4_0", "4.5 bits: GGUF's Q4_0, for files that others read too"},
    {"q4_k", "4.5 bits: GGUF's Q4_K, a scale and a least value for 32 weights"},
    {"iq4_nl", "4.5 bits: GGUF's IQ4_NL, iq4_xs for blocks of 32"},
    {"nf4", "4.5 bits: quantiles of the normal distribution, as QLoRA has them; slow"},
    {"q4h", "4.5 bits: q4 with a scale for 16 weights; a quarter less error"},
    {"q5", "5.25 bits: trellis codes, 64 levels"},
    {"q5_k", "5.5 bits: GGUF's Q5_K, q4_k with twice the levels"},
    {"q5_0", "5.5 bits: GGUF's Q5_0, twice the levels of q4_0"},
    {"q6", "6.25 bits: 64 levels, a scale for 32 weights"},
    {"q6_k", "6.6 bits: GGUF's Q6_K"},
    {"q8", "8.5 bits: GGUF's Q8_0; hard to tell from f16"},
    {"q8f", "9 bits: q8 with scales of 32 bits, as llama2.c has them"},
    {"f16", "16 bits: floats with fine steps, up to 65504"},
    {"bf16", "16 bits: floats of the range of f32 with coarse steps; most models are trained so"},
    {"f32", "32 bits: nothing is lost"},
};

constexpr Line kOfKv[] = {
    {"f32", "exact, twice the memory of f16"},
    {"f16", "the default; hard to tell from f32"},
    {"f8", "half the memory of f16, floats of 8 bits (e4m3) without a scale"},
    {"q8", "a little more than half, integers of 8 bits under scales; nearer to f16 than f8"},
    {"q4_0", "a little more than a quarter, integers of 4 bits: answers differ, long texts fit"},
};

std::vector<std::pair<std::string, std::string>> explained(std::span<const Line> lines,
                                                           const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const std::string& name : names) {
    const auto at = std::ranges::find(lines, name, &Line::first);
    ENSURE(at != lines.end(), "a format that can be chosen is explained");
    rows.emplace_back(name, at->second);
  }
  return rows;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> weight_formats(
    const std::vector<std::string>& names) {
  return explained(kOfWeights, names);
}
std::vector<std::pair<std::string, std::string>> kv_formats(const std::vector<std::string>& names) {
  return explained(kOfKv, names);
}

}  // namespace chaski
