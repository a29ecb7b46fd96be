// The tokens that a draw chooses from. The steps of the sampler narrow them, and each step leaves
// at least the most probable one. Probabilities are those of the candidates alone: exp(logit -
// largest) divided by the sum over all candidates.
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
  // Takes all tokens, or the `k` tokens with the largest logits if k > 0. Leaves out tokens
  // whose logit is minus infinity. At least one logit must be finite.
  void assign(std::span<const float> logits, int k);
  // Larger logits first, equal ones by token id. The order is total, so it does not depend on how
  // the candidates were found.
  std::span<const Candidate> sorted();
  std::span<const Candidate> all() const { return all_; }  // in their present order
  double largest() const;
  double sum();  // of exp(logit - largest), in sorted order

  void keep_first(size_t n);    // in sorted order
  void remove_first(size_t n);  // in sorted order
  // How many candidates in sorted order reach `wanted` of sum(), at least one.
  size_t count_of_sum(double wanted);
  template <class Pred>
  void remove_if(Pred pred) {
    std::erase_if(all_, pred);
  }
  // Candidates that a step reorders or removes by itself.
  std::vector<Candidate>& to_reorder() { return sorted_ = false, all_; }
  // Keeps candidates whose surprise is at most `bits`, and the most probable one.
  void keep_within(double bits);
  void divide(double temperature);
  // The entropy as a fraction of the largest possible one for this number of candidates: 0 if one
  // is certain, 1 if all are equally probable.
  double relative_entropy();
  double log_probability(TokenId token);

 private:
  std::vector<Candidate> all_;
  bool sorted_ = false;
};

}  // namespace chaski
