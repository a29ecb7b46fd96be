// Drafts by a smaller model. The smaller model does not read the prompt: this would take a tenth of
// the time of an answer, even where drafts save nothing. Its session begins with the last tokens
// before the first draft. They get positions from 0 on, because in training attention always saw a
// token at position 0. A draft token is drawn with the noise of its position in the whole text, as
// the target draws it.
#include <algorithm>

#include "engine/drafting/drafters.h"

namespace chaski {

namespace {

class ModelDrafter : public Drafter {
 public:
  // The tokens that a session begins with. 64 are hardly better, and each costs time.
  static constexpr size_t kWindow = 8;
  // More new tokens than one verification pass can add: then the session begins anew.
  static constexpr size_t kMostAtOnce = 24;

  // `cost`: Drafter::Model::cost.
  ModelDrafter(std::shared_ptr<Engine> engine, double cost, const SamplerOptions& sampling,
               const Tokenizer* tokenizer)
      : session_(engine->session()),
        cost_(cost),
        tokenizer_(tokenizer),
        sampler_(sampling, tokenizer) {}

  Model model(std::span<const TokenId> history) const override {
    return {cost_, begins_anew(history)};
  }

  Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) override {
    if (shape[0] <= 0) return {};
    std::span<const TokenId> next = begin_at(history);
    const int k = std::min(shape[0], context() - int(history.size() - start_));
    std::vector<TokenId> text(history.begin(), history.end());
    while (int(text.size() - history.size()) < k) {
      text.push_back(draw(next, text));
      if (tokenizer_ && tokenizer_->is_end(text.back())) break;
      next = std::span(text).last(1);
    }
    return Draft::chain(std::span(text).subspan(history.size()));
  }

 private:
  int context() const { return session_->engine().context_length(); }

  // Whether the session is too far from the text, or nearly full.
  bool begins_anew(std::span<const TokenId> history) const {
    if (start_ >= history.size()) return true;
    const std::span<const TokenId> known = history.subspan(start_);
    return known.size() - session_->common_prefix(known) > kMostAtOnce ||
           int(known.size()) + Draft::kMost > context();
  }

  // Returns the tokens that the session has to read.
  std::span<const TokenId> begin_at(std::span<const TokenId> history) {
    if (!begins_anew(history))
      // recurrent states may have to be rewound further
      if (const auto next = session_->reuse(history.subspan(start_)); next.size() <= kMostAtOnce)
        return next;
    // Another session may have read the text from its beginning.
    start_ = 0;
    if (const auto next = session_->reuse(history);
        next.size() <= kMostAtOnce && int(history.size()) + Draft::kMost <= context())
      return next;
    start_ = history.size() - std::min(history.size(), kWindow);
    return session_->reuse(history.subspan(start_));
  }

  TokenId draw(std::span<const TokenId> next, std::span<const TokenId> text) {
    const Extension guess{
        .session = session_.get(), .tokens = next, .sampler = &sampler_, .tentative = true};
    // A pass draws with the noise of the session's positions, and penalties see its tokens alone.
    if (start_ == 0 || (sampler_.options().temperature == 0 && sampler_.plain())) {
      Pass({&guess, 1}).draw(draws_);
      if (draws_[0].error) failed(*draws_[0].error);
      return draws_[0].tokens[0];
    }
    try {
      Pass pass({&guess, 1});
      pass.run();
      const std::span<const float> logits = pass.rows();
      return sampler_.draw(tokenizer_ ? logits.first(size_t(tokenizer_->size())) : logits, text);
    } catch (const Error& error) {
      failed(error);
    }
  }
  [[noreturn]] void failed(const Error& error) const {
    throw Error(error.code, session_->engine().path() + ": " + error.what());
  }

  std::unique_ptr<Session> session_;
  const double cost_;
  const Tokenizer* tokenizer_;
  Sampler sampler_;
  std::vector<Draws> draws_;
  size_t start_ = 0;  // the place in the text of the session's first token
};

}  // namespace

std::unique_ptr<Drafter> model_drafter(std::shared_ptr<Engine> draft, const Engine& target,
                                       const SamplerOptions& sampling) {
  if (draft->vocab_size() != target.vocab_size())
    fail(Exit::usage, "--draft {}: vocabulary of {}, expected {} as in {}", draft->path(),
         draft->vocab_size(), target.vocab_size(), target.path());
  if (draft->has_tokenizer() && target.has_tokenizer()) {
    const Tokenizer &a = draft->tokenizer(), &b = target.tokenizer();
    for (TokenId i = 0; i < std::min(a.size(), b.size()); ++i)
      if (a.raw(i) != b.raw(i))
        fail(Exit::usage, "--draft {}: token {} is '{}', expected '{}' as in {}", draft->path(), i,
             escaped(a.raw(i)), escaped(b.raw(i)), target.path());
  }
  const double cost = double(draft->weight_bytes()) / double(target.weight_bytes());
  return std::make_unique<ModelDrafter>(std::move(draft), cost, sampling,
                                        target.has_tokenizer() ? &target.tokenizer() : nullptr);
}

extern const DrafterKind kModelDrafter;
const DrafterKind kModelDrafter = {nullptr, "a smaller model with the same vocabulary",
                                   [](const DraftRequest&, const HeadsFolder&) { return true; },
                                   [](const DraftRequest& r, const HeadsFolder&) -> NewDrafter {
                                     return [draft = r.open_model(),
                                             target = r.target](const SamplerOptions& sampling) {
                                       return model_drafter(draft, *target, sampling);
                                     };
                                   }};

}  // namespace chaski
