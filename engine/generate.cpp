#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "engine/text/stop_filter.h"
#include "engine/text/utf8.h"

namespace chaski {

const char* name_of(Finish finish) {
  constexpr const char* kNames[] = {"end", "stop", "length", "context_full", "interrupted"};
  return kNames[int(finish)];
}

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Generation {
 public:
  Generation(Session& session, std::span<const TokenId> prompt, const GenerateOptions& o,
             const Sink& sink)
      : session_(session),
        o_(o),
        sink_(sink),
        sampler_(o.sampling),
        stops_(o.stop),
        history_(prompt.begin(), prompt.end()) {
    const Tokenizer& t = session.engine().tokenizer();
    opens_text_ =
        std::all_of(prompt.begin(), prompt.end(), [&](TokenId id) { return t.is_control(id); });
  }

  GenerateResult run() {
    result_.prompt_tokens = int(history_.size());
    const auto start = std::chrono::steady_clock::now();
    std::optional<Finish> finish = prompt();
    result_.prompt_seconds = result_.first_token_seconds = seconds_since(start);
    const auto decode_start = std::chrono::steady_clock::now();
    while (!finish) finish = pass();
    result_.decode_seconds = seconds_since(decode_start);
    result_.finish = *finish;
    if (o_.governor) result_.speed_up = o_.governor->speed_up();
    if (*finish != Finish::stop) show(text_.flush(), true);
    return std::move(result_);
  }

 private:
  // Tokens that fit into the context besides those before the last.
  int room() const { return session_.position() + session_.room() - (int(history_.size()) - 1); }
  bool interrupted() const { return o_.interrupt && o_.interrupt->load(); }

  // The prompt in portions of a pass, so that an interrupt need not wait for all of it, and the
  // first token.
  std::optional<Finish> prompt() {
    const std::span<const TokenId> all = history_;
    const int context = session_.position() + session_.room();
    if (int(all.size()) > context)
      fail(Exit::prompt_too_long, "the prompt has {} tokens, the context {}", all.size(), context);
    const size_t portion = size_t(session_.engine().batch_length());
    std::span<const TokenId> rest = session_.reuse(all);
    result_.cached_tokens = session_.position();
    for (; rest.size() > portion; rest = rest.subspan(portion)) {
      if (interrupted()) return Finish::interrupted;
      session_.extend(rest.first(portion), 0);
    }
    if (interrupted()) return Finish::interrupted;
    return take(session_.draw(rest, 1, sampler_));
  }

  // One forward pass: the last drawn token, and guesses at what follows it.
  std::optional<Finish> pass() {
    if (interrupted()) return Finish::interrupted;
    if (room() == 0) return Finish::full;
    Governor::Outcome outcome;
    const std::vector<TokenId> guesses = this->guesses(outcome);
    const int base = int(history_.size()) - 1;
    // The last token, and those before it that the session had to forget with wrong guesses.
    std::vector<TokenId> tokens(history_.begin() + session_.position(), history_.end());
    tokens.insert(tokens.end(), guesses.begin(), guesses.end());
    const auto start = std::chrono::steady_clock::now();
    const std::vector<TokenId> drawn = session_.draw(tokens, int(guesses.size()) + 1, sampler_);
    outcome.passing = seconds_since(start), outcome.right = int(drawn.size()) - 1;
    learn(outcome, drawn[0]);
    result_.decode_bytes += session_.engine().weight_bytes() + session_.engine().state_bytes(base);
    ++result_.passes;
    // All but the last draw are guesses that were right, unless generation ends at one of them.
    const size_t before = result_.tokens.size();
    const std::optional<Finish> finish = take(drawn);
    const size_t taken = std::min(result_.tokens.size() - before, drawn.size() - 1);
    count(guesses.size(), taken);
    session_.rewind(base + 1 + int(taken));
    return finish;
  }

  std::vector<TokenId> guesses(Governor::Outcome& outcome) {
    int k = std::min(o_.draft_length, room() - 1);
    if (o_.max_tokens >= 0) k = std::min(k, o_.max_tokens - int(result_.tokens.size()) - 1);
    unasked_.clear();
    if (!o_.drafter || k <= 0) return {};
    const auto start = std::chrono::steady_clock::now();
    std::vector<TokenId> guesses;
    if (o_.governor) {
      outcome.kind = o_.drafter->kind(history_);
      k = o_.governor->length(outcome.kind, k);
      if (k == 0 && o_.governor->cheap()) unasked_ = o_.drafter->propose(history_, 1);
    }
    if (k > 0) guesses = o_.drafter->propose(history_, k);
    outcome.guesses = int(guesses.size()), outcome.drafting = seconds_since(start);
    return guesses;
  }

  void learn(const Governor::Outcome& outcome, TokenId drawn) {
    if (!o_.governor) return;
    o_.governor->learn(outcome);
    if (!unasked_.empty()) o_.governor->learn_unasked(outcome.kind, unasked_[0] == drawn);
  }

  void count(size_t guesses, size_t taken) {
    result_.drafted += int(guesses), result_.accepted += int(taken);
    result_.drafted_at.resize(std::max(result_.drafted_at.size(), guesses));
    result_.accepted_at.resize(result_.drafted_at.size());
    for (size_t i = 0; i < guesses; ++i) ++result_.drafted_at[i];
    for (size_t i = 0; i < taken; ++i) ++result_.accepted_at[i];
  }

  std::optional<Finish> take(const std::vector<TokenId>& drawn) {
    for (const TokenId token : drawn)
      if (const std::optional<Finish> finish = take(token)) return finish;
    return std::nullopt;
  }

  // The next token, and its text to the sink.
  std::optional<Finish> take(TokenId token) {
    const Tokenizer& t = session_.engine().tokenizer();
    if (o_.max_tokens == 0) return Finish::length;
    if (t.is_end(token) && !o_.ignore_end) return Finish::end;
    history_.push_back(token);
    result_.tokens.push_back(token);
    if (!t.is_control(token))
      show(text_.push(opens_text_ ? t.decode({&token, 1}) : t.piece(token)), false);
    opens_text_ = false;
    if (stops_.stopped()) return Finish::stop;
    if (o_.max_tokens >= 0 && int(result_.tokens.size()) >= o_.max_tokens) return Finish::length;
    return std::nullopt;
  }

  void show(const std::string& whole, bool last) {
    std::string text = stops_.push(whole);
    if (last) text += stops_.flush();
    if (text.empty()) return;
    result_.text += text;
    sink_(text);
  }

  Session& session_;
  const GenerateOptions& o_;
  const Sink& sink_;
  Sampler sampler_;
  StopFilter stops_;
  Utf8Stream text_;
  std::vector<TokenId> history_;
  std::vector<TokenId> unasked_;  // a guess that no pass checks, to learn from
  bool opens_text_;
  GenerateResult result_;
};

}  // namespace

GenerateResult generate(Session& session, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink) {
  ENSURE(!prompt.empty(), "a model needs a token to start from");
  return Generation(session, prompt, options, sink).run();
}

}  // namespace chaski
