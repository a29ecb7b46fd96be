#include "engine/requests/prompt_scores.h"

#include "engine/requests/reading_aside.h"

namespace chaski {

namespace {

constexpr size_t kScoredPortion = 64;  // tokens: each has a row of logits

}  // namespace

std::vector<LogProbabilities> prompt_scores(Inbox& inbox, std::span<const TokenId> tokens, int most,
                                            const std::atomic<bool>& gone) {
  std::vector<LogProbabilities> scores;
  if (tokens.size() < 2) return scores;
  const TextsAside text{{tokens.first(tokens.size() - 1)}, kScoredPortion, Result::logits, true};
  read_aside(inbox, text, gone, [&](const PartAside& part) {
    const size_t columns = part.rows.size() / part.size;
    for (size_t i = 0; i < part.size && !gone; ++i)
      scores.push_back(log_probabilities(part.rows.subspan(i * columns, columns),
                                         tokens[part.from + i + 1], most));
  });
  return scores;
}

}  // namespace chaski
