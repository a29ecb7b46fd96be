// Guesses at what comes next. Every source of drafts is a Drafter; none can change the text, only
// the speed (see generate.h).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "engine/session.h"

namespace chaski {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // At most k tokens that may follow `history` (all tokens of the target so far, the last one not
  // yet evaluated by it).
  virtual std::vector<TokenId> propose(std::span<const TokenId> history, int k) = 0;
};

// A smaller model with the same vocabulary, drawing with the target's own noise so that it guesses
// well. Throws Error(usage) if the vocabularies differ (the first different piece is named).
std::unique_ptr<Drafter> model_drafter(std::shared_ptr<Engine> draft, const Engine& target,
                                       const SamplerOptions& sampling);

}  // namespace chaski
