// Rotary position embedding (Su et al. 2021, RoFormer) and the ways to extend its context.
//   linear   Chen et al. 2023: positions divided by factor
//   dynamic  theta grows with the requested context (NTK-aware, "dynamic" in transformers)
//   llama3   the frequency bands of Llama 3.1's reference code
//   yarn     Peng et al. 2023, YaRN: NTK-by-parts and an attention factor on cos and sin
//   longrope Ding et al. 2024, LongRoPE: a divisor for each frequency, different in long contexts
#pragma once
#include <cstdint>
#include <vector>

namespace chaski {

enum class RopeScaling { none, linear, dynamic, llama3, yarn, longrope };

struct RopeSpec {
  int dim = 0;  // rotated channels of a head, even; pairs are (2i, 2i + 1)
  double theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4, beta_fast = 32, beta_slow = 1;
  double attention_factor = 0;  // yarn, longrope: factor on cos and sin; 0: derived from `factor`
  double mscale = 0, mscale_all_dim = 0;  // yarn: if above 0, both determine it instead
  bool truncate = true;                   // yarn: the bounds of its ramp are whole pairs
  int64_t original_context = 0;
  // The context of the session, used by dynamic and longrope. It does not depend on how much is in
  // use; otherwise a token's angles would depend on the tokens after it.
  int64_t context = 0;
  std::vector<float> short_factors, long_factors;  // longrope: up to original_context, and beyond
  // Queries only: position p is multiplied with 1 + temperature ln(1 + floor((p +
  // temperature_offset) / original_context)).
  double temperature = 0;
  int temperature_offset = 0;
  std::vector<float> freq_factors;  // GGUF's rope_freqs: divides each frequency; empty: none

  bool operator==(const RopeSpec&) const = default;

  // Radians per position of each pair, (dim / 2).
  std::vector<double> frequencies() const;
  // The factor on cos and sin of every position.
  double magnitude() const;
  // Replaces a head, of at least `dim` channels, by its mean over the rotations of positions
  // [0, positions). Channels beyond `dim` do not rotate.
  void average(float* head, int64_t positions) const;
  // Appends cos, sin of positions [from, to) to table: (position, dim / 2, 2).
  void append(std::vector<float>& table, int64_t from, int64_t to) const;
};

}  // namespace chaski
