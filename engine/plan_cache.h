// Plans by the shape of the batch they were made for. A run of odd prompt lengths must not fill
// memory with them.
#pragma once
#include <map>
#include <memory>
#include <utility>

#include "ggml-like-tensor/batch.h"

namespace chaski {

template <class P>
class PlanCache {
 public:
  // make() returns a std::unique_ptr<P>.
  template <class Make>
  P& get(const Batch& batch, Make make) {
    const std::pair key{batch.tokens.size(), batch.outputs.size()};
    if (const auto known = plans_.find(key); known != plans_.end()) return *known->second;
    std::unique_ptr<P> made = make();
    if (plans_.size() >= kMost) plans_.clear();
    return *(plans_[key] = std::move(made));
  }

 private:
  static constexpr size_t kMost = 64;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<P>> plans_;
};

}  // namespace chaski
