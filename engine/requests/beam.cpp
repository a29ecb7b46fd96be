#include "engine/requests/beam.h"

#include <algorithm>

#include "ggml-like-tensor/noise.h"

namespace chaski {

namespace {

struct Hypothesis {
  std::unique_ptr<Session> session;  // null: finished
  std::vector<TokenId> tokens;
  AnswerText text;
  std::string shown;
  double sum = 0;  // of log probabilities
  int length = 0;  // tokens in the sum, with the one that ended the text
  std::optional<Finish> finish;
};

struct BeamToken {
  size_t beam;
  TokenId token;
  double sum;
};

class BeamSearch {
 public:
  BeamSearch(Session& session, std::span<const TokenId> prompt, const GenerateOptions& o,
             const BeamOptions& beams)
      : engine_(session.engine()),
        prompt_(prompt),
        o_(o),
        width_(size_t(beams.width)),
        penalty_(beams.length_penalty),
        sampler_(o.sampling, &engine_.tokenizer()) {
    ENSURE(beams.width > 0 && penalty_ >= 0,
           "the width is positive and the length penalty is not negative");
    ENSURE(!o.grammar, "beam search does not support a grammar");
    const bool opens = leading_controls(engine_.tokenizer(), prompt) == prompt.size();
    live_.push_back({session.fork(), {}, {engine_.tokenizer(), o_, opens}, "", 0, 0, {}});
    live_[0].session->drop_end();
  }

  std::vector<Beam> run() {
    const auto start = Clock::now();
    std::span<const float> logits = read_prompt();
    const double prompt_seconds = logits.empty() ? 0 : seconds_since(start);
    const auto decoding = Clock::now();
    while (!logits.empty()) {
      advance(continuations(logits));
      const bool over = live_.empty() ||
                        (finished_.size() == width_ && score(live_[0]) <= score(finished_.back()));
      if (over) live_.clear();
      logits = over || interrupted() ? std::span<const float>() : pass();
    }
    for (Hypothesis& h : live_)
      finish(std::move(h), o_.max_tokens == 0 ? Finish::length : Finish::interrupted);
    std::vector<Beam> out;
    for (Hypothesis& h : finished_) {
      GenerateResult r;
      r.text = h.shown + h.text.flush();
      r.tokens = std::move(h.tokens), r.finish = *h.finish;
      r.prompt_tokens = int(prompt_.size()), r.cached_tokens = cached_;
      r.known_tokens = known_;
      r.passes = passes_, r.decode_bytes = bytes_;
      r.prompt_seconds = prompt_seconds, r.decode_seconds = seconds_since(decoding);
      r.first_token_seconds = seconds_since(start);  // no token is certain earlier
      if (h.length > 0) r.mean_log_probability = h.sum / h.length;
      out.push_back({std::move(r), score(h)});
    }
    return out;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  bool interrupted() const { return o_.interrupt && o_.interrupt->load(); }

  double score(const Hypothesis& h) const {
    if (h.length == 0) return 0;
    return penalty_ == 1 ? h.sum / h.length : h.sum * exp64(-penalty_ * log64(double(h.length)));
  }

  // Returns the logits after the prompt; empty if no tokens are asked for, or at an interrupt.
  std::span<const float> read_prompt() {
    if (int(prompt_.size()) > engine_.context_length())
      fail(
          Exit::prompt_too_long,
          "the prompt has {} tokens, but the context holds {}: shorten the prompt, or give --ctx N "
          "for a larger context if the model supports it",
          prompt_.size(), engine_.context_length());
    Session& s = *live_[0].session;
    std::span<const TokenId> missing = s.reuse(prompt_);
    cached_ = s.position();
    report_known(s.position());
    if (o_.max_tokens == 0) return {};
    const size_t most = size_t(engine_.batch_length());
    for (; missing.size() > most && !interrupted(); missing = missing.subspan(most)) {
      s.extend(missing.first(most), 0);
      report_known(s.position());
    }
    if (interrupted()) return {};
    const std::span<const float> logits = s.extend(missing);
    report_known(s.position());
    return logits;
  }
  void report_known(int tokens) {
    known_ = tokens;
    if (o_.on_read) o_.on_read(tokens, int(prompt_.size()));
  }

  // One pass that reads the last token of every beam.
  std::span<const float> pass() {
    std::vector<Extension> all;
    for (const Hypothesis& h : live_)
      all.push_back({.session = h.session.get(), .tokens = std::span(h.tokens).last(1)});
    bytes_ += engine_.weight_bytes(int(live_.size())) / live_.size() +
              engine_.state_bytes(live_[0].session->position());
    ++passes_;
    Pass pass(all);
    pass.run();
    return pass.rows();
  }

  // The 2 * width best continuations of all beams. Ties: the earlier beam first, and within a beam
  // the token that a greedy draw takes.
  std::vector<BeamToken> continuations(std::span<const float> logits) {
    const size_t vocab = size_t(engine_.vocab_size()),
                 drawable = size_t(engine_.tokenizer().size());
    std::vector<BeamToken> all;
    for (size_t i = 0; i < live_.size(); ++i) {
      const auto changed = sampler_.changed(logits.subspan(i * vocab, vocab).first(drawable),
                                            live_[i].session->tokens());
      const LogProbabilities best = log_probabilities(changed, 0, int(2 * width_));
      for (const auto& [token, value] : best.most) all.push_back({i, token, live_[i].sum + value});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const BeamToken& a, const BeamToken& b) { return a.sum > b.sum; });
    if (all.size() > 2 * width_) all.resize(2 * width_);
    return all;
  }

  // Replaces the beams by their best continuations. Those that end a text are finished.
  void advance(const std::vector<BeamToken>& best) {
    std::vector<Hypothesis> next;
    std::vector<size_t> parents;
    for (size_t rank = 0; rank < best.size() && next.size() < width_; ++rank) {
      const Hypothesis& from = live_[best[rank].beam];
      Hypothesis h{nullptr,        from.tokens,     from.text, from.shown,
                   best[rank].sum, from.length + 1, {}};
      const std::optional<Finish> ends = take(h, best[rank].token);
      if (!ends)
        next.push_back(std::move(h)), parents.push_back(best[rank].beam);
      else if (rank < width_)
        finish(std::move(h), *ends);
    }
    for (size_t i = 0; i < next.size(); ++i) {
      const bool last =
          std::count(parents.begin() + ptrdiff_t(i) + 1, parents.end(), parents[i]) == 0;
      std::unique_ptr<Session>& session = live_[parents[i]].session;
      next[i].session = last ? std::move(session) : session->fork();
    }
    live_ = std::move(next);
  }

  // Appends a token, as Request::take() does.
  std::optional<Finish> take(Hypothesis& h, TokenId token) {
    if (engine_.tokenizer().is_end(token) && !o_.ignore_end) return Finish::end;
    h.tokens.push_back(token);
    h.shown += h.text.push(token);
    if (h.text.stopped()) return Finish::stop;
    if (o_.max_tokens >= 0 && int(h.tokens.size()) >= o_.max_tokens) return Finish::length;
    if (int(prompt_.size() + h.tokens.size()) - 1 >= engine_.context_length()) return Finish::full;
    return std::nullopt;
  }

  // Ties: the text that finished earlier comes first.
  void finish(Hypothesis h, Finish why) {
    h.session.reset();
    h.finish = why;
    const auto place =
        std::upper_bound(finished_.begin(), finished_.end(), score(h),
                         [&](double s, const Hypothesis& other) { return s > score(other); });
    finished_.insert(place, std::move(h));
    if (finished_.size() > width_) finished_.pop_back();
  }

  Engine& engine_;
  const std::span<const TokenId> prompt_;
  const GenerateOptions& o_;
  const size_t width_;
  const double penalty_;
  Sampler sampler_;
  std::vector<Hypothesis> live_, finished_;  // best first
  int cached_ = 0, known_ = 0, passes_ = 0;
  uint64_t bytes_ = 0;  // read while decoding, per beam
};

}  // namespace

std::vector<Beam> beam_search(Session& session, std::span<const TokenId> prompt,
                              const GenerateOptions& options, const BeamOptions& beams) {
  ENSURE(!prompt.empty(), "a model needs a token to start from");
  return BeamSearch(session, prompt, options, beams).run();
}

}  // namespace chaski
