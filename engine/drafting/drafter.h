// Drafters propose draft tokens, which the target checks in one verification pass. A drafter cannot
// change the text, only the speed (see generate.h). A drafter serves one text at a time. Only the
// thread that makes the passes calls it; any thread may set the flag of `interrupt`.
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
  // Drafts differ in their acceptance rate. The kind of the draft that would follow `history`,
  // below kKinds; -1 if there is no draft.
  virtual int kind(std::span<const TokenId>) { return 0; }
  // Whether a draft takes so little time that one may be made only to measure its acceptance rate.
  virtual bool costs_nothing() const { return false; }
  // Of a draft model, so that the governor knows its cost before it was measured.
  struct Model {
    double cost = 0;           // of a token, as a fraction of a pass of the target; 0: no model
    bool reads_first = false;  // a draft also has to read a part of the text before it
  };
  virtual Model model(std::span<const TokenId>) const { return {}; }
  // How many alternatives for the next token it may propose, at most Draft::kFirst.
  virtual int first_guesses() const { return 1; }
  // Tokens that may follow `history`, which holds all tokens of the text; the target has not
  // evaluated the last one yet. The alternatives for the next token are ordered, the most probable
  // first; each has as many nodes as `shape` says, or fewer. Further nodes are not checked.
  virtual Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) = 0;

  // Whether it reads hidden rows of the target's passes: the input of its output head, or for
  // EAGLE-3 a row made from the inputs of three layers. After each pass read_hidden() then gets a
  // text and the rows of consecutive tokens of it, up to the second to last token. The last token
  // was drawn from the last row, or follows it in the prompt.
  virtual bool reads_hidden() const { return false; }
  virtual void read_hidden(std::span<const TokenId>, std::span<const float>) {}

  // Once it is set, no drafts are wanted any more; a drafter that is reading stops.
  const std::atomic<bool>* interrupt = nullptr;
};

// Drafts by a smaller model with the same vocabulary. It draws with the same noise as the target,
// so that the two often agree. Throws Error(usage), which names the first token that differs, if
// the vocabularies differ.
std::unique_ptr<Drafter> model_drafter(std::shared_ptr<Engine> draft, const Engine& target,
                                       const SamplerOptions& sampling);

// Drafts by Medusa heads (draft_heads.h), which draw with the same noise as the target.
std::unique_ptr<Drafter> heads_drafter(std::shared_ptr<DraftHeads> heads,
                                       const SamplerOptions& sampling);

// Drafts by an EAGLE head (draft_eagle.h), which draws with the same noise as its target.
std::unique_ptr<Drafter> eagle_drafter(std::shared_ptr<Engine> eagle,
                                       const SamplerOptions& sampling);

// Drafts what followed the same tokens earlier in the prompt or the answer.
std::unique_ptr<Drafter> ngram_drafter();

}  // namespace chaski
