#include "engine/requests/loaded_model.h"

#include <algorithm>

namespace chaski {

LoadedModel::LoadedModel(std::shared_ptr<Engine> engine, NewDrafter drafters, int draft_length)
    : engine_(std::move(engine)), drafters_(std::move(drafters)), draft_length_(draft_length) {
  engine_->tokenizer();
}

std::unique_ptr<Drafter> LoadedModel::drafter(const SamplerOptions& sampling) const {
  return drafters_ ? drafters_(sampling) : nullptr;
}

std::shared_ptr<Grammar> LoadedModel::grammar(const std::shared_ptr<const Rules>& rules) {
  const auto known = std::ranges::find(grammars_, rules->sum(),
                                       [](const auto& grammar) { return grammar->rules().sum(); });
  if (known != grammars_.end()) {
    std::rotate(known, known + 1, grammars_.end());
  } else {
    if (grammars_.size() == kGrammars) grammars_.erase(grammars_.begin());
    grammars_.push_back(std::make_shared<Grammar>(rules, engine_->tokenizer()));
  }
  return grammars_.back();
}

}  // namespace chaski
