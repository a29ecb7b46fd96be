// The log probabilities of the tokens of a prompt, computed between the passes of an inbox.
#pragma once
#include <atomic>
#include <span>
#include <vector>

#include "engine/requests/inbox.h"

namespace chaski {

// Element i has the log probability of tokens[i + 1] after the tokens before it, and those of the
// top `most` tokens there. The prompt is read by read_aside() (reading_aside.h). Once `gone` is
// set, the rest is not read and the result is shorter.
std::vector<LogProbabilities> prompt_scores(Inbox& inbox, std::span<const TokenId> tokens, int most,
                                            const std::atomic<bool>& gone);

}  // namespace chaski
