#include "engine/requests/embedding.h"

#include <algorithm>

#include "engine/session/session.h"
#include "models/architecture.h"

namespace chaski {

namespace {

constexpr size_t kMostPortion = 128;  // tokens

}  // namespace

std::vector<float> embedding(Inbox& inbox, std::span<const TokenId> tokens,
                             const std::atomic<bool>& gone) {
  const Engine& engine = *inbox.model()->engine();
  const bool mean = engine.model().pooling == Model::Pooling::mean;
  std::vector<double> sums(size_t(engine.hidden_size()));
  std::unique_ptr<Session> session;  // begins and ends in the thread of the passes
  size_t at = 0;
  inbox.read([&](Engine& e, int most) -> Inbox::Portion {
    try {
      const auto part =
          tokens.subspan(at, gone ? 0 : std::min({kMostPortion, size_t(most), tokens.size() - at}));
      at += part.size();
      if (!part.empty()) {
        if (!session) session = e.session();
        const std::span<const float> rows = session->hidden(part, mean ? int(part.size()) : 1);
        if (!mean) std::ranges::fill(sums, 0);
        for (size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += rows[i];
      }
      const bool last = part.empty() || at == tokens.size();
      if (last) session.reset();
      return {.tokens = int(part.size()), .last = last};
    } catch (...) {
      session.reset();
      throw;
    }
  });
  std::vector<float> pooled;
  const double count = mean ? double(tokens.size()) : 1;
  for (const double sum : sums) pooled.push_back(float(sum / count));
  return pooled;
}

}  // namespace chaski
