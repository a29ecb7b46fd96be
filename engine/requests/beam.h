// Beam search: finds some of the most probable texts after a prompt. The `width` most probable
// unfinished texts, the beams, get one token in each pass. Their sessions are forks of the one that
// read the prompt and share pages. Nothing is drawn at random.
#pragma once
#include <span>
#include <vector>

#include "engine/requests/request.h"

namespace chaski {

struct BeamOptions {
  int width = 1;
  double length_penalty = 1;  // score = sum of log probabilities / number of tokens ^ this
};

struct Beam {
  GenerateResult result;
  // The token that ended the text is counted too.
  double score = 0;
};

// Returns at most `width` texts, best first. Each step takes the 2 * width best continuations of
// all beams. Those among the first `width` that end a text are finished; the `width` best of the
// others become the beams. The search stops when
//   `width` texts are finished and no beam has a better score than the worst of them,
//   no beam is left, or
//   the interrupt flag is set: it is checked between passes and ends all beams where they are.
// Probabilities are those of the logits after penalties, biases and banned texts. With one beam the
// text is the greedy one. Ignores the options for drafting, sampling, grammar and a full context.
// Throws what Pass::run() throws.
std::vector<Beam> beam_search(Session& session, std::span<const TokenId> prompt,
                              const GenerateOptions& options, const BeamOptions& beams);

}  // namespace chaski
