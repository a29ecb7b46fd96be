// Beam search: of all texts that begin with a prompt, some of the most probable. The `width` most
// probable so far, the beams, go on side by side, a token a pass for all of them; they are forks of
// the session that read the prompt, and share its pages and each other's. Nothing is drawn.
#pragma once
#include <span>
#include <vector>

#include "engine/requests/request.h"

namespace chaski {

struct BeamOptions {
  int width = 1;
  double length_penalty = 1;  // a score is a sum over (number of tokens) ^ this
};

struct Beam {
  GenerateResult result;
  // The sum of the log probabilities of its tokens, of that too which ended it, over their number
  // to the power of the length penalty.
  double score = 0;
};

// Best first, `width` of them if there are so many texts. Of the 2 * width best continuations of
// the beams, those among the first `width` that end are finished, and the `width` best of the
// others go on. It is over when `width` are finished and no beam has a better score as it stands
// than the worst of them, when none goes on, and at an interrupt, which is noticed between passes
// and ends all beams where they are. Probabilities are those of the logits as penalties, biases and
// banned texts leave them; with one beam the text is the greedy one. Of the options, what guesses,
// draws, drops tokens of a full context or is a grammar has no part in it. Throws what
// extend_all() throws.
std::vector<Beam> beam_search(Session& session, std::span<const TokenId> prompt,
                              const GenerateOptions& options, const BeamOptions& beams);

}  // namespace chaski
