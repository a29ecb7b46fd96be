// Caches the plans of a stage by the shape of the batch: the number of tokens and outputs, the kind
// of result, and the network. Making a plan takes as long as several decode steps. Prompts have
// many lengths, so the cache is limited.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "ggml-like-tensor/graph.h"

namespace chaski {

template <class P>
class PlanCache {
 public:
  // The plan that computes `what` of `network` for this batch. If there is none, make() makes it as
  // a std::unique_ptr<P>. A full cache evicts its least recently used plan, but a plan of one token
  // last: every decode step uses it.
  template <class Make>
  P& get(const Batch& batch, Result what, Network network, Make make) {
    const Shape shape{batch.tokens.size(), batch.outputs.size(), what, network};
    auto found = plans_.find(shape);
    if (found == plans_.end()) {
      std::unique_ptr<P> made = make();
      if (plans_.size() >= kMost) drop_oldest();
      found = plans_.emplace(shape, Kept{std::move(made)}).first;
    }
    found->second.last_use = ++uses_;
    return *found->second.plan;
  }

 private:
  struct Shape {
    size_t tokens, outputs;
    Result what;
    Network network;
    auto operator<=>(const Shape&) const = default;
  };
  struct Kept {
    std::unique_ptr<P> plan;
    uint64_t last_use = 0;
  };
  static constexpr size_t kMost = 64;

  void drop_oldest() {
    plans_.erase(std::min_element(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.tokens == 1, a.second.last_use) <
             std::pair(b.first.tokens == 1, b.second.last_use);
    }));
  }

  std::map<Shape, Kept> plans_;
  uint64_t uses_ = 0;
};

}  // namespace chaski
