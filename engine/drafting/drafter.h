// Guesses at what comes next. Every source of drafts is a Drafter; none can change the text, only
// the speed (see generate.h).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/passes/draft.h"
#include "engine/sampling/sampler.h"
#include "engine/session/pass.h"

namespace chaski {

class DraftHeads;

class Drafter {
 public:
  static constexpr int kKinds = 8;

  virtual ~Drafter() = default;
  // Guesses differ in how often they are right: of which kind those are that would come after
  // `history`, below kKinds; -1 if there are none.
  virtual int kind(std::span<const TokenId>) { return 0; }
  // Whether a guess takes so little time that one may be made only to learn from it.
  virtual bool costs_nothing() const { return false; }
  // How many guesses at the next token it may have, Draft::kFirst at most.
  virtual int first_guesses() const { return 1; }
  // What may follow `history`: all tokens of the text so far, the last of which the target has not
  // evaluated yet. Of the first guesses, the likeliest first, as many nodes as `shape` says, or
  // fewer; what is beyond is not checked.
  virtual Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) = 0;

  // Whether it goes by rows of the target's passes: what its logits are made of, or what an EAGLE-3
  // head makes of what three layers read. After each pass it is then told a text
  // and the rows of some of its tokens, one after the other up to the last token but one: the last
  // token was drawn behind the last row, or stands there in the prompt.
  virtual bool reads_hidden() const { return false; }
  virtual void read_hidden(std::span<const TokenId>, std::span<const float>) {}

  // Where it is set while the drafter reads, no guesses are wanted any more.
  const std::atomic<bool>* interrupt = nullptr;
};

// A smaller model with the same vocabulary. It draws with the same noise as the target, so that the
// two often agree. Throws Error(usage), which names the first piece that differs, if the
// vocabularies are not the same.
std::unique_ptr<Drafter> model_drafter(std::shared_ptr<Engine> draft, const Engine& target,
                                       const SamplerOptions& sampling);

// Heads over the target's hidden row (draft_heads.h). They draw with the same noise as the target.
std::unique_ptr<Drafter> heads_drafter(std::shared_ptr<DraftHeads> heads,
                                       const SamplerOptions& sampling);

// An EAGLE head (draft_eagle.h), which draws with the same noise as its target.
std::unique_ptr<Drafter> eagle_drafter(std::shared_ptr<Engine> eagle,
                                       const SamplerOptions& sampling);

// What came after the same words before, in the prompt or the answer.
std::unique_ptr<Drafter> ngram_drafter();

}  // namespace chaski
