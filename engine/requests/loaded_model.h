// A model that many requests share: the engine with its weights, tokenizer and prefix cache, the
// kind of drafter, and the grammars that were compiled for its vocabulary. Any thread may call its
// functions.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "engine/drafting/drafters.h"
#include "engine/requests/request.h"

namespace chaski {

class LoadedModel {
 public:
  // Throws Error(bad_file) if the model has no tokenizer. Without `drafters` nothing is drafted.
  explicit LoadedModel(std::shared_ptr<Engine> engine, NewDrafter drafters = {},
                       int draft_length = 0);

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  int draft_length() const { return draft_length_; }
  // A drafter for one text with these settings; null: none.
  std::unique_ptr<Drafter> drafter(const SamplerOptions& sampling) const;
  // The grammar of these rules, compiled in the calling thread unless it is one of the last
  // kGrammars. It learns while texts are generated, so only the thread that makes the passes uses
  // it. Throws what the constructor of Grammar throws.
  std::shared_ptr<Grammar> grammar(const std::shared_ptr<const Rules>& rules);

 private:
  static constexpr size_t kGrammars = 16;

  std::shared_ptr<Engine> engine_;
  NewDrafter drafters_;
  int draft_length_;
  std::mutex mutex_;                                // guards what follows
  std::shared_ptr<const TokenTrie> trie_;           // made for the first grammar
  std::vector<std::shared_ptr<Grammar>> grammars_;  // the least recently used first
};

}  // namespace chaski
