// Drafts by Medusa heads, from the hidden state that the last token of the text was drawn from.
#include <algorithm>

#include "engine/drafting/draft_heads.h"
#include "engine/drafting/drafters.h"
#include "models/import/hf/heads.h"

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
    text_size_ = text.size();
  }
  // The hidden state is of no use for a text that was cut since then, or for another text.
  int kind(std::span<const TokenId> text) override { return text.size() == text_size_ ? 0 : -1; }

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
  size_t text_size_ = 0;  // tokens of the text whose last token was drawn from hidden_; 0: none
};

}  // namespace

std::unique_ptr<Drafter> heads_drafter(std::shared_ptr<DraftHeads> heads,
                                       const SamplerOptions& sampling) {
  const Engine& target = heads->target();
  const Tokenizer* tokenizer = target.has_tokenizer() ? &target.tokenizer() : nullptr;
  return std::make_unique<HeadsDrafter>(std::move(heads), sampling, tokenizer);
}

extern const DrafterKind kMedusaDrafter;
const DrafterKind kMedusaDrafter = {
    nullptr, "a folder of Medusa heads",
    [](const DraftRequest&, const HeadsFolder& heads) { return heads.kind() == HeadsKind::medusa; },
    [](const DraftRequest& r, const HeadsFolder& folder) -> NewDrafter {
      return [heads = std::make_shared<DraftHeads>(folder, r.target)](
                 const SamplerOptions& sampling) { return heads_drafter(heads, sampling); };
    }};

}  // namespace chaski
