#include "engine/requests/prompt_scores.h"

#include <algorithm>
#include <memory>

#include "engine/session/session.h"

namespace chaski {

namespace {

constexpr size_t kScoredPortion =
    64;  // tokens: the rows of logits of a pass have to fit into memory

}  // namespace

std::vector<LogProbabilities> prompt_scores(Inbox& inbox, std::span<const TokenId> tokens, int most,
                                            const std::atomic<bool>& gone) {
  std::vector<LogProbabilities> scores;
  if (tokens.size() < 2) return scores;
  const std::span<const TokenId> read = tokens.first(tokens.size() - 1);
  std::unique_ptr<Session> session;  // begins and ends in the thread of the passes
  inbox.read([&](Engine& engine, int allowed) -> Inbox::Portion {
    try {
      const size_t at = scores.size(),
                   n = gone ? 0 : std::min({kScoredPortion, size_t(allowed), read.size() - at});
      if (n > 0) {
        if (!session) session = engine.session();
        const std::span<const float> rows = session->extend(read.subspan(at, n), int(n));
        const size_t vocab = rows.size() / n;
        for (size_t i = 0; i < n; ++i)
          scores.push_back(
              log_probabilities(rows.subspan(i * vocab, vocab), tokens[at + i + 1], most));
      }
      const bool last = n == 0 || scores.size() == read.size();
      if (last) session.reset();
      return {.tokens = int(n), .last = last};
    } catch (...) {
      session.reset();
      throw;
    }
  });
  return scores;
}

}  // namespace chaski
