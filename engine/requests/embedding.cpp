#include "engine/requests/embedding.h"

#include <algorithm>

#include "engine/session/session.h"
#include "models/architecture.h"

namespace chaski {

namespace {

constexpr size_t kPortion = 128;  // tokens

// A session that begins and ends in the thread of the passes.
struct SessionOfInbox {
  Inbox& inbox;
  std::unique_ptr<Session> session = nullptr;
  ~SessionOfInbox() {
    if (session) inbox.run([&](Engine&) { session.reset(); });
  }
};

}  // namespace

std::vector<float> embedding(Inbox& inbox, std::span<const TokenId> tokens,
                             const std::atomic<bool>& gone) {
  const Engine& engine = *inbox.model()->engine();
  const bool mean = engine.model().pooling == Model::Pooling::mean;
  std::vector<double> sums(size_t(engine.hidden_size()));
  SessionOfInbox own{inbox};
  for (size_t at = 0; at < tokens.size() && !gone; at += kPortion)
    inbox.run([&](Engine& e) {
      if (!own.session) own.session = e.session();
      const auto part = tokens.subspan(at, std::min(kPortion, tokens.size() - at));
      const std::span<const float> rows = own.session->hidden(part, mean ? int(part.size()) : 1);
      if (!mean) std::ranges::fill(sums, 0);
      for (size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += rows[i];
    });
  std::vector<float> pooled;
  const double count = mean ? double(tokens.size()) : 1;
  for (const double sum : sums) pooled.push_back(float(sum / count));
  return pooled;
}

}  // namespace chaski
