// Drafts by heads over the row that the last token of the text was drawn from.
#include <algorithm>

#include "engine/drafting/draft_heads.h"
#include "engine/drafting/drafter.h"

namespace chaski {

namespace {

class HeadsDrafter : public Drafter {
 public:
  HeadsDrafter(std::shared_ptr<DraftHeads> heads, const SamplerOptions& sampling,
               const Tokenizer* tokenizer)
      : heads_(std::move(heads)), tokenizer_(tokenizer), sampler_(sampling, tokenizer) {}

  bool reads_hidden() const override { return true; }
  void read_hidden(std::span<const TokenId> text, std::span<const float> hidden) override {
    const auto last = hidden.last(size_t(heads_->target().hidden_size()));
    hidden_.assign(last.begin(), last.end());
    behind_ = text.size();
  }
  // A text that was cut since then, or another one, is not what the row speaks of.
  int kind(std::span<const TokenId> text) override { return text.size() == behind_ ? 0 : -1; }

  Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) override {
    if (kind(history) < 0) return {};
    std::vector<TokenId> text(history.begin(), history.end()), guesses;
    for (int head = 0; head < std::min(shape[0], heads_->count()); ++head) {
      const std::span<const float> logits = heads_->logits(head, hidden_, interrupt);
      if (logits.empty()) break;
      guesses.push_back(sampler_.draw(logits, text));
      if (tokenizer_ && tokenizer_->is_end(guesses.back())) break;
      text.push_back(guesses.back());
    }
    return Draft::chain(guesses);
  }

 private:
  std::shared_ptr<DraftHeads> heads_;
  const Tokenizer* tokenizer_;
  Sampler sampler_;
  std::vector<float> hidden_;
  size_t behind_ = 0;  // tokens of the text, the last of which was drawn from it; 0: none
};

}  // namespace

std::unique_ptr<Drafter> heads_drafter(std::shared_ptr<DraftHeads> heads,
                                       const SamplerOptions& sampling) {
  const Engine& target = heads->target();
  const Tokenizer* tokenizer = target.has_tokenizer() ? &target.tokenizer() : nullptr;
  return std::make_unique<HeadsDrafter>(std::move(heads), sampling, tokenizer);
}

}  // namespace chaski
