// From logits to a token: repetition penalty, temperature, top-k, top-p, min-p, then one draw by
// Gumbel-max: the argmax over the kept tokens of logit / T + g(seed, position, token). The noise g
// comes from a counter-based generator (Philox 4x32-10, Salmon et al. 2011), so a draw is a
// function of the logits, the position and the seed alone; neither batching nor speculation moves
// it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "ggml-like-tensor/noise.h"

namespace chaski {

struct SamplerOptions {
  // 0: greedy, the other settings but repeat_penalty are without effect
  double temperature = 0.8;
  int top_k = 40;       // keep the k most probable; 0: all
  double top_p = 0.95;  // keep the smallest set with this probability; 1: all
  // drop what is less probable than min_p x the most probable; 0: none
  double min_p = 0.05;
  // > 1: logits of the last repeat_window tokens are divided (if positive) or multiplied by it
  double repeat_penalty = 1.0;
  int repeat_window = 64;
  uint64_t seed = 0;

  void check() const;  // Error(usage) that names the flag, the value and the range
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  // `history`: the tokens before the drawn one; its size is the position of the draw.
  TokenId draw(std::span<const float> logits, std::span<const TokenId> history);
  const SamplerOptions& options() const { return options_; }

 private:
  SamplerOptions options_;
  struct Candidate {
    float logit;
    TokenId token;
  };
  std::vector<Candidate> kept_;
  std::vector<float> logits_;  // with the penalty applied
};

// The logarithm of the probability that a model with these logits gives to a token.
double log_probability(std::span<const float> logits, TokenId token);

}  // namespace chaski
