// Several answers to one prompt, for run --answers and --best-of. The prompt is read once. Answer i
// uses seed + i, and its text is the same as in a run with that seed, bit for bit.
#pragma once
#include <vector>

#include "main/commands/speaker.h"

namespace chaski {

struct Answers {
  std::vector<GenerateResult> results;  // in the order of their seeds
  double seconds = 0;                   // wall time for all
};

// Calls `show(i, part)` while text is generated; answer i is complete before i + 1 begins. Throws
// the error of a request. After an interrupt it returns the texts so far.
using ShowAnswer = std::function<void(size_t answer, std::string_view part)>;
Answers answers_to(Speaker& speaker, std::span<const TokenId> prompt, int n,
                   const ShowAnswer& show);

size_t most_probable(const Answers& answers);

// One line for the user, like timing_line() for one answer.
std::string answers_line(const Answers& answers, uint64_t seed, bool all);

}  // namespace chaski
