#include "engine/requests/embedding.h"

#include <algorithm>

#include "engine/requests/reading_aside.h"
#include "models/architecture.h"

namespace chaski {

namespace {

constexpr size_t kMostPortion = 256;  // tokens

}  // namespace

std::vector<std::vector<float>> embeddings(Inbox& inbox,
                                           std::span<const std::vector<TokenId>> texts,
                                           const std::atomic<bool>& gone) {
  const Engine& engine = *inbox.model()->engine();
  const bool mean = engine.model().pooling == Model::Pooling::mean;
  const auto columns = size_t(engine.hidden_size());
  std::vector<double> sums(columns);  // of the text that is being read
  std::vector<std::vector<float>> all;
  const TextsAside aside{{texts.begin(), texts.end()}, kMostPortion, Result::hidden, mean};
  const bool whole = read_aside(inbox, aside, gone, [&](const PartAside& part) {
    if (!mean || part.from == 0) std::ranges::fill(sums, 0);
    for (size_t i = 0; i < part.rows.size(); ++i) sums[i % columns] += part.rows[i];
    const size_t size = texts[part.text].size();
    if (part.from + part.size < size) return;
    std::vector<float>& pooled = all.emplace_back();
    for (const double sum : sums) pooled.push_back(float(sum / (mean ? double(size) : 1)));
  });
  if (!whole) all.clear();
  return all;
}

}  // namespace chaski
