// Drafts by a smaller model.
#include <algorithm>

#include "engine/drafting/drafters.h"

namespace chaski {

namespace {

class ModelDrafter : public Drafter {
 public:
  // More new tokens than one verification pass can add: then the text is new.
  static constexpr size_t kMostAtOnce = 24;

  ModelDrafter(std::shared_ptr<Engine> engine, const SamplerOptions& sampling,
               const Tokenizer* tokenizer)
      : session_(engine->session()), sampler_(sampling, tokenizer) {}

  Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) override {
    const int k = std::min(shape[0], session_->engine().context_length() - int(history.size()));
    if (k <= 0) return {};
    Session& s = *session_;
    std::span<const TokenId> next = s.reuse(history);
    // A prompt is read in portions, one for each pass of the target, so that no request waits for
    // all of it. No tokens are drafted meanwhile, so the measured time of drafts contains no
    // reading.
    if (next.size() > kMostAtOnce) {
      next = next.first(std::min(next.size() - 1, size_t(s.engine().batch_length())));
      const Extension portion{
          .session = &s, .tokens = next, .wanted = 0, .sampler = &sampler_, .interrupt = interrupt};
      draw_all({&portion, 1});
      return {};
    }
    std::vector<TokenId> guesses;
    while (int(guesses.size()) < k) {
      const Extension guess{.session = &s, .tokens = next, .sampler = &sampler_, .tentative = true};
      const Draws draws = draw_all({&guess, 1})[0];
      if (draws.error)
        throw Error(draws.error->code, s.engine().path() + ": " + draws.error->what());
      guesses.push_back(draws.tokens[0]);
      if (s.engine().has_tokenizer() && s.engine().tokenizer().is_end(guesses.back())) break;
      next = std::span(guesses).last(1);
    }
    return Draft::chain(guesses);
  }

 private:
  std::unique_ptr<Session> session_;
  Sampler sampler_;
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
  return std::make_unique<ModelDrafter>(std::move(draft), sampling,
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
