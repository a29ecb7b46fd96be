#include "engine/requests/embedding.h"

#include <algorithm>

#include "engine/requests/reading_aside.h"
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
  const TextAside text{tokens, kMostPortion, Result::hidden, mean};
  const auto add_rows = [&](const Pass& pass, size_t, size_t) {
    const std::span<const float> rows = pass.rows();
    if (!mean) std::ranges::fill(sums, 0);
    for (size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += rows[i];
  };
  if (!read_aside(inbox, text, gone, add_rows)) return {};
  std::vector<float> pooled;
  const double count = mean ? double(tokens.size()) : 1;
  for (const double sum : sums) pooled.push_back(float(sum / count));
  return pooled;
}

}  // namespace chaski
