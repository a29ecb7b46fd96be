// Several answers to one prompt: run --answers and --best-of. The prompt is read once, answer i is
// drawn with seed + i, and its text is that of a run with this seed alone, bit for bit.
#pragma once
#include <vector>

#include "main/commands/speaker.h"

namespace chaski {

struct Answers {
  std::vector<GenerateResult> results;  // by seed
  double seconds = 0;                   // of all together
};

// `show(i, part)`: texts as they come, each whole before the next begins. Throws what a request
// ended with. Interrupted, it returns what there is.
using ShowAnswer = std::function<void(size_t answer, std::string_view part)>;
Answers answers_to(Speaker& speaker, std::span<const TokenId> prompt, int n,
                   const ShowAnswer& show);

size_t most_probable(const Answers& answers);

// One line for people, as timing_line() is for one answer.
std::string answers_line(const Answers& answers, uint64_t seed, bool all);

}  // namespace chaski
