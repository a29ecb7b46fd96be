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
  const auto known = [&]() -> std::shared_ptr<Grammar> {
    const auto found = std::ranges::find(
        grammars_, rules->sum(), [](const auto& grammar) { return grammar->rules().sum(); });
    if (found == grammars_.end()) return nullptr;
    std::rotate(found, found + 1, grammars_.end());
    return grammars_.back();
  };
  std::shared_ptr<const TokenTrie> trie;
  {
    const std::scoped_lock lock(mutex_);
    if (std::shared_ptr<Grammar> grammar = known()) return grammar;
    if (!trie_) trie_ = std::make_shared<const TokenTrie>(engine_->tokenizer());
    trie = trie_;
  }
  auto made = std::make_shared<Grammar>(rules, engine_->tokenizer(), std::move(trie));
  const std::scoped_lock lock(mutex_);
  if (std::shared_ptr<Grammar> grammar = known()) return grammar;  // of another thread
  if (grammars_.size() == kGrammars) grammars_.erase(grammars_.begin());
  grammars_.push_back(std::move(made));
  return grammars_.back();
}

}  // namespace chaski
