// Drafts by a smaller model.
#include <algorithm>

#include "engine/drafter.h"

namespace chaski {

namespace {

class ModelDrafter : public Drafter {
 public:
  ModelDrafter(std::shared_ptr<Engine> engine, const SamplerOptions& sampling) : session_(engine->session()), sampler_(sampling) {}

  std::vector<TokenId> propose(std::span<const TokenId> history, int k) override {
    k = std::min(k, session_->engine().context_length() - int(history.size()));
    if (k <= 0) return {};
    std::vector<TokenId> all(history.begin(), history.end());
    std::span<const float> logits;
    // A long prompt is read in portions, one a pass of the target, so that nobody waits for all of it.
    constexpr size_t kPortion = 256;
    const size_t held = session_->common_prefix(all);
    if (all.size() - held > kPortion) {
      session_->sync(std::span(all).first(held + kPortion), &logits);
      return {};
    }
    session_->sync(all, &logits);
    for (int i = 0; i < k; ++i) {
      all.push_back(sampler_.draw(logits, all));
      if (session_->engine().has_tokenizer() && session_->engine().tokenizer().is_end(all.back())) break;
      if (i + 1 < k) logits = session_->decode(all.back());
    }
    return {all.begin() + std::ssize(history), all.end()};
  }

 private:
  std::unique_ptr<Session> session_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Drafter> model_drafter(std::shared_ptr<Engine> draft, const Engine& target, const SamplerOptions& sampling) {
  if (draft->vocab_size() != target.vocab_size())
    fail(Exit::usage, "--draft {}: vocabulary of {}, expected {} as in {}", draft->path(), draft->vocab_size(), target.vocab_size(),
         target.path());
  if (draft->has_tokenizer() && target.has_tokenizer()) {
    const Tokenizer &a = draft->tokenizer(), &b = target.tokenizer();
    for (TokenId i = 0; i < std::min(a.size(), b.size()); ++i)
      if (a.raw(i) != b.raw(i))
        fail(Exit::usage, "--draft {}: token {} is '{}', expected '{}' as in {}", draft->path(), i, escaped(a.raw(i)), escaped(b.raw(i)),
             target.path());
  }
  return std::make_unique<ModelDrafter>(std::move(draft), sampling);
}

}  // namespace chaski
