// Drafts by an EAGLE head. Its session has a cell for each hidden row that the target returned for
// the text. While it drafts, the rows of the draft tokens follow them.
#include <algorithm>

#include "engine/drafting/draft_eagle.h"
#include "engine/drafting/drafters.h"
#include "models/heads/eagle.h"
#include "models/import/hf/heads.h"

namespace chaski {

namespace {

class EagleDrafter : public Drafter {
 public:
  // More rows than this are a prompt, which is read at once. While no drafts are wanted, at most
  // this many rows wait, so that the next draft does not take long.
  static constexpr size_t kMostAtOnce = 24;
  static constexpr float kNever = -INFINITY;  // a logit

  EagleDrafter(std::shared_ptr<Engine> eagle, const SamplerOptions& sampling,
               const Tokenizer* tokenizer)
      : session_(eagle->session()),
        known_(dynamic_cast<const EagleHead&>(eagle->model()).tokens),
        vocab_(eagle->vocab_size()),
        columns_(size_t(eagle->hidden_size())),
        tokenizer_(tokenizer),
        sampler_(sampling, tokenizer) {}

  bool reads_hidden() const override { return true; }
  int first_guesses() const override { return Draft::kFirst; }

  // A row belongs to the token that follows it, too. Rows after the first token that differs from
  // the known text are dropped. Rows may be missing where another session read that part of the
  // text; the next rows then follow directly.
  void read_hidden(std::span<const TokenId> text, std::span<const float> hidden) override {
    within_memory([&] { take(text, hidden); });
  }

  int kind(std::span<const TokenId> text) override {
    return std::ranges::equal(text, text_) ? 0 : -1;
  }

  Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) override {
    Draft draft;
    within_memory([&] { draft = guessed(history, shape); });
    return draft;
  }

 private:
  // If there is no memory for its KV cache, it drops all rows of this text.
  template <class Fn>
  void within_memory(Fn fn) {
    try {
      fn();
    } catch (const Error& error) {
      if (error.code != Exit::memory) throw;
      text_.clear(), places_.clear(), rows_.clear(), read_ = 0;
      session_->rewind(0);
    }
  }

  void take(std::span<const TokenId> text, std::span<const float> hidden) {
    const size_t first = text.size() - 1 - hidden.size() / columns_;
    const auto same = size_t(
        std::mismatch(text_.begin(), text_.end(), text.begin(), text.end()).first - text_.begin());
    const auto kept = size_t(std::ranges::lower_bound(places_, std::min(first, same - (same > 0))) -
                             places_.begin());
    places_.resize(kept);
    read_ = std::min(read_, kept);
    session_->rewind(int(read_));
    rows_.resize((kept - read_) * columns_);
    for (size_t i = first; i + 1 < text.size(); ++i) places_.push_back(i);
    rows_.insert(rows_.end(), hidden.begin(), hidden.end());
    text_.assign(text.begin(), text.end());
    if (hidden.size() / columns_ > kMostAtOnce)
      read(waiting() - 1);
    else if (waiting() > kMostAtOnce)
      drop(waiting() - kMostAtOnce);
  }

  Draft guessed(std::span<const TokenId> history, const Draft::Shape& shape) {
    if (kind(history) < 0 || places_.empty()) return {};
    const int room = session_->engine().context_length() - int(history.size());
    if (room <= 0 || shape[0] <= 0) return {};
    if (waiting() == 0) --read_, rows_ = last_;  // the same draft is wanted again
    session_->rewind(int(read_));
    const std::vector<TokenId> tokens = tokens_of(waiting());
    const std::optional<Session::Next> next = extend(tokens, rows_);
    if (!next) return {};
    last_.assign(rows_.end() - ptrdiff_t(columns_), rows_.end());
    read_ = places_.size();
    rows_.clear();
    // Each first token is what is drawn if the first tokens before it are removed.
    const std::span<const float> first = drawable(next->logits);
    std::vector<float> left(first.begin(), first.end()),
        row(next->hidden.begin(), next->hidden.end());
    Draft draft;
    const size_t most = known_.empty() ? first.size() : known_.size();
    for (size_t i = 0; i < std::min(shape.size(), most) && shape[i] > 0; ++i) {
      std::vector<TokenId> text(history.begin(), history.end());
      const TokenId guess = sampler_.draw(left, text);
      left[size_t(guess)] = kNever;
      add_branch(draft, guess, std::min(shape[i], room), row, text);
    }
    return draft;
  }

  size_t waiting() const { return places_.size() - read_; }

  std::vector<TokenId> tokens_of(size_t n) const {
    std::vector<TokenId> tokens;
    for (size_t i = read_; i < read_ + n; ++i) tokens.push_back(text_[places_[i] + 1]);
    return tokens;
  }

  // Adds a first draft token and the tokens that follow it.
  void add_branch(Draft& draft, TokenId guess, int nodes, std::span<const float> row,
                  std::vector<TokenId>& text) {
    row_.assign(row.begin(), row.end());
    for (int node = draft.add(guess, -1);; node = draft.add(guess, node)) {
      if (--nodes == 0 || (tokenizer_ && tokenizer_->is_end(guess))) break;
      text.push_back(guess);
      const std::optional<Session::Next> next = extend({&guess, 1}, row_);
      if (!next) break;
      row_.assign(next->hidden.begin(), next->hidden.end());
      guess = sampler_.draw(drawable(next->logits), text);
    }
    session_->rewind(int(read_));
  }

  std::optional<Session::Next> extend(std::span<const TokenId> tokens,
                                      std::span<const float> rows) {
    try {
      return session_->extend(tokens, rows, interrupt);
    } catch (const Error& error) {
      if (error.code != Exit::non_finite) throw;
      fail(error.code, "{}: {}", session_->engine().path(), error.what());
    }
  }

  // Reads the first n waiting rows into the KV cache, without drafting.
  void read(size_t n) {
    const std::vector<TokenId> tokens = tokens_of(n);
    const Extension rows{.session = session_.get(),
                         .tokens = tokens,
                         .wanted = 0,
                         .interrupt = interrupt,
                         .input_rows = std::span(rows_).first(n * columns_)};
    if (!Pass({&rows, 1}).run()) return;
    rows_.erase(rows_.begin(), rows_.begin() + ptrdiff_t(n * columns_));
    read_ += n;
  }

  // Drops the first n waiting rows.
  void drop(size_t n) {
    places_.erase(places_.begin() + ptrdiff_t(read_), places_.begin() + ptrdiff_t(read_ + n));
    rows_.erase(rows_.begin(), rows_.begin() + ptrdiff_t(n * columns_));
  }

  // The logits of all tokens that may be drawn. Tokens that the head does not know have -infinity.
  std::span<const float> drawable(std::span<const float> logits) {
    if (!known_.empty()) {
      all_.assign(size_t(vocab_), kNever);
      for (size_t i = 0; i < known_.size(); ++i) all_[size_t(known_[i])] = logits[i];
      logits = all_;
    }
    return tokenizer_ ? logits.first(size_t(tokenizer_->size())) : logits;
  }

  std::unique_ptr<Session> session_;
  const std::vector<int32_t>& known_;  // which tokens its logits are of; empty: all
  const int vocab_;
  const size_t columns_;
  const Tokenizer* tokenizer_;
  Sampler sampler_;
  std::vector<TokenId> text_;   // the text as read_hidden() last had it
  std::vector<size_t> places_;  // the position in text_ of each known row
  size_t read_ = 0;             // how many of these rows are in the KV cache
  std::vector<float> rows_;     // the other ones, which wait
  std::vector<float> last_;     // the last row that was read before a draft
  std::vector<float> row_, all_;
};

}  // namespace

std::unique_ptr<Drafter> eagle_drafter(std::shared_ptr<Engine> eagle,
                                       const SamplerOptions& sampling) {
  const Engine& target = *eagle->target();
  const Tokenizer* tokenizer = target.has_tokenizer() ? &target.tokenizer() : nullptr;
  return std::make_unique<EagleDrafter>(std::move(eagle), sampling, tokenizer);
}

extern const DrafterKind kEagleDrafter;
const DrafterKind kEagleDrafter = {
    nullptr,
    "a folder of an EAGLE head, or the model itself if it has a layer for one more token (MiMo, "
    "Qwen 3.5)",
    [](const DraftRequest& r, const HeadsFolder& heads) {
      return heads.is_eagle() || has_next_layer(heads, [&] { return r.target->meta(); });
    },
    [](const DraftRequest& r, const HeadsFolder& folder) -> NewDrafter {
      return [eagle = open_eagle(folder, r.target, r.sessions)](const SamplerOptions& sampling) {
        return eagle_drafter(eagle, sampling);
      };
    }};

}  // namespace chaski
