// The tokens that a draw chooses from, and the steps that narrow them. Every step leaves at least
// the most probable one. Probabilities are those of the candidates alone, exp(logit - largest)
// over their sum.
#pragma once
#include <span>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

struct Candidate {
  double logit;
  TokenId token;
};

class Candidates {
 public:
  // All tokens, or those `k` with the largest logits if k > 0; without those at minus infinity,
  // which are not all.
  void assign(std::span<const float> logits, int k);
  // Larger logit first, then the smaller id: one order, so that nothing depends on how candidates
  // were found.
  std::span<const Candidate> sorted();

  void keep_top_k(int k);
  // The smallest set with this probability (nucleus sampling, Holtzman et al. 2020).
  void keep_top_p(double p);
  // What is at least p times as probable as the most probable.
  void keep_min_p(double p);
  // Logits within n standard deviations of the largest (Tang et al. 2024).
  void keep_top_n_sigma(double n);
  // The smallest set with this probability whose surprises are nearest to the entropy (Meister et
  // al. 2023).
  void keep_typical(double p);
  // Drops what has at least this probability, but for the least probable of it.
  void drop_top_choices(double threshold);
  // What surprises by no more than so many bits.
  void keep_within(double bits);
  void divide(double temperature);
  // Nats, as a part of the most that so many candidates can have: 0 where one is sure, 1 where all
  // are equal.
  double relative_entropy();
  double log_probability(TokenId token);

 private:
  double largest() const;
  double sum();
  void keep_at_least(double logit);

  std::vector<Candidate> all_;
  bool sorted_ = false;
};

}  // namespace chaski
