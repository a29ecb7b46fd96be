#include "engine/requests/request.h"

#include <algorithm>

#include "engine/pages/kv_cache.h"

namespace chaski {

const char* name_of(Finish finish) {
  constexpr const char* kNames[] = {"end", "stop", "length", "full", "interrupted"};
  return kNames[int(finish)];
}

namespace {

constexpr int kSinks = 4;

// A pass with a draft reads at most this many tokens before the draft: the last one, and those that
// a recurrent state lost with a rejected draft. If this draft is rejected too, its accepted tokens
// are added to them. A pass without a draft keeps its state, so none are read again after it.
constexpr size_t kMostPending = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

size_t leading_controls(const Tokenizer& t, std::span<const TokenId> prompt) {
  const auto text =
      std::find_if_not(prompt.begin(), prompt.end(), [&](TokenId id) { return t.is_control(id); });
  return size_t(text - prompt.begin());
}

Request::Request(Engine& engine, std::span<const TokenId> prompt, const GenerateOptions& options,
                 Sink sink)
    : engine_(engine),
      o_(options),
      own_grammar_(options.rules && !options.grammar
                       ? std::make_unique<Grammar>(options.rules, engine.tokenizer())
                       : nullptr),
      sink_(std::move(sink)),
      drafter_(options.drafter),
      leading_controls_(leading_controls(engine.tokenizer(), prompt)),
      grammar_(options.grammar || own_grammar_
                   ? std::optional<GrammarText>(std::in_place,
                                                own_grammar_ ? *own_grammar_ : *options.grammar,
                                                leading_controls_ == prompt.size())
                   : std::nullopt),
      sampler_(options.sampling, &engine.tokenizer(), grammar_ ? &*grammar_ : nullptr),
      text_(engine.tokenizer(), o_, leading_controls_ == prompt.size()),
      history_(prompt.begin(), prompt.end()) {
  ENSURE(!prompt.empty(), "a model needs a token to start from");
  if (drafter_) drafter_->interrupt = o_.interrupt;
  fit_prompt();
  result_.prompt_tokens = int(history_.size());
}

int Request::kept() const {
  return o_.context_policy == ContextPolicy::sinks ? kSinks
                                                   : std::max(o_.keep, int(leading_controls_));
}

// Drops the older half of the tokens that may be dropped. False if there are none.
bool Request::drop_half() {
  const int size = int(history_.size()), kept = std::min(this->kept(), size);
  const int dropped = o_.context_policy == ContextPolicy::stop ? 0 : (size - kept) / 2;
  history_.erase(history_.begin() + kept, history_.begin() + kept + dropped);
  result_.dropped_tokens += dropped;
  return dropped > 0;
}

void Request::fit_prompt() {
  const size_t all = history_.size();
  while (room() <= 0 && drop_half()) {
  }
  const bool shifts = o_.context_policy != ContextPolicy::stop;
  if (room() <= 0)
    throw Error(
        Exit::prompt_too_long,
        fmt::format("the prompt has {} token{}, but the context holds {}: shorten the "
                    "prompt{} give --ctx N for a larger context if the model supports it{}",
                    all, all == 1 ? "" : "s", engine_.context_length(), shifts ? ", or" : ",",
                    shifts ? "" : ", or --context-policy shift to drop the older half"),
        int64_t(all), engine_.context_length());
  if (result_.dropped_tokens > 0 && o_.on_drop)
    o_.on_drop(result_.dropped_tokens, kept(), int(history_.size()) - kept());
}

bool Request::goes_on() {
  if (!finish_ && o_.interrupt && o_.interrupt->load()) finish_ = Finish::interrupted;
  return !finish_ && !error;
}

Extension Request::next(Session& session, int budget, int others, int others_drafted) {
  const std::span<const TokenId> missing = session.reuse(history_);
  if (!started_) started_ = Clock::now(), result_.cached_tokens = session.position();
  if (!begun_) {
    // Refused before it is read, not when memory ends.
    engine_.kv_cache().expect_memory_for(
        int(history_.size()), engine_.batch_length(),
        fmt::format("the KV cache of a prompt of {} tokens", history_.size()));
    result_.known_tokens = session.position();
    if (o_.on_read) o_.on_read(session.position(), int(history_.size()));
  }
  const size_t n = std::min(missing.size(), size_t(std::max(budget, 1)));
  reaches_end_ = n == missing.size();
  extension_.assign(missing.begin(), missing.begin() + ptrdiff_t(n));
  draft_ = {}, from_grammar_ = false;
  if (grammar_) grammar_->set_history(history_.size());
  looked_for_draft_ = reaches_end_ && begun_ && n <= kMostPending;
  if (looked_for_draft_)
    draft_ = draft_tokens(session, int(n), budget - int(n), others, others_drafted + int(n) - 1);
  extension_end_ = history_.size() - missing.size() + n;
  const bool hidden = drafter_ && drafter_->reads_hidden();
  return {.session = &session,
          .tokens = extension_,
          .wanted = reaches_end_ ? 1 : 0,
          .sampler = &sampler_,
          .log_probabilities = o_.scored,
          .interrupt = o_.interrupt,
          .draft = draft_.nodes,
          .hidden = hidden};
}

template <class Fn>
void Request::use_drafter(Fn use) {
  try {
    use();
  } catch (const Error& lost) {
    if (lost.code != Exit::non_finite && lost.code != Exit::memory) throw;
    drafter_ = nullptr;
    if (o_.on_drafter_lost) o_.on_drafter_lost(lost.what());
  }
}

Draft Request::draft_tokens(const Session& session, int pending, int most, int others,
                            int others_drafted) {
  int k = std::min({o_.draft_length, room() - 1, most});
  if (o_.max_tokens >= 0) k = std::min(k, o_.max_tokens - int(result_.tokens.size()) - 1);
  first_draft_.clear(), kind_ = -1, draft_seconds_ = 0, drafter_read_ = false;
  if (k <= 0) return {};
  Draft draft;
  try {  // a grammar that is too large to predict from gives no draft tokens
    if (grammar_) draft = Draft::chain(grammar_->forced(k));
  } catch (const Error&) {
  }
  from_grammar_ = !draft.nodes.empty();
  // The grammar's predictions are mostly right, and a drafter cannot continue after them.
  if (from_grammar_ || !drafter_ || (o_.governor && o_.governor->rests())) return draft;
  const auto start = Clock::now();
  const int branches = session.branches(pending + k, others + 1),
            first = std::min(drafter_->first_guesses(), branches + 1);
  Draft::Shape shape{};
  if (!o_.governor) {
    for (int i = 1; i < first; ++i) shape[size_t(i)] = k / 4;
    shape[0] = k - Draft::size(shape);
  } else if (kind_ = drafter_->kind(history_);
             !drafter_->costs_nothing() || o_.governor->knows(kind_)) {
    shape = o_.governor->shape(kind_, k, first, others, others_drafted, drafter_->model(history_));
  }
  Draft::Shape asked = shape;
  if (drafter_->costs_nothing())
    for (int i = 0; i < drafter_->first_guesses(); ++i)
      asked[size_t(i)] = std::max(asked[size_t(i)], 1);
  if (Draft::size(asked) > 0) {
    drafter_read_ = drafter_->model(history_).reads_first;
    use_drafter([&] { draft = drafter_->propose(history_, asked); });
  }
  draft_seconds_ = seconds_since(start);
  drafter_asked_ = drafter_asked_ || Draft::size(shape) > 0;
  try {
    if (grammar_) draft = grammar_->fitting(draft);
  } catch (const Error&) {
    draft = {};
  }
  first_draft_ = draft.first();
  draft = draft.within(shape);
  draft.keep_branches(branches);
  if (!session.has_memory_for(draft.branches(), pending + k, others + 1)) draft.keep_branches(0);
  return draft;
}

std::optional<Finish> Request::take(const Draws& draws, int requests) {
  if (draws.error) throw *draws.error;
  if (!draws.hidden.empty()) {  // tokens after the end are included: the session holds them too
    std::vector<TokenId> text(
        history_.begin(), history_.begin() + ptrdiff_t(extension_end_ + (reaches_end_ ? 0 : 1)));
    text.insert(text.end(), draws.tokens.begin(), draws.tokens.end());
    use_drafter([&] { drafter_->read_hidden(text, draws.hidden); });
  }
  if (!reaches_end_ || draws.abandoned) return std::nullopt;
  const int base = int(history_.size()) - 1;
  if (begun_) {
    learn(draws);
    result_.decode_bytes +=
        engine_.weight_bytes(requests) / uint64_t(requests) + engine_.state_bytes(base);
    ++result_.passes;
  } else {
    result_.prompt_seconds = result_.first_token_seconds = seconds_since(*started_);
    decoding_ = Clock::now();
    begun_ = true;
    // Answers that share a governor share the prompt's time too.
    if (o_.governor) o_.governor->learn_prompt(result_.prompt_seconds / requests);
    result_.known_tokens = int(history_.size());
    if (o_.on_read) o_.on_read(result_.known_tokens, result_.known_tokens);
  }
  // All draws but the last are accepted draft tokens, unless generation ends at one of them.
  const size_t before = result_.tokens.size();
  for (size_t i = 0; i < draws.tokens.size() && !finish_; ++i) {
    if (o_.scored) log_probability_ += draws.log_probabilities[i].drawn, ++scored_;
    finish_ = take(draws.tokens[i], o_.scored ? &draws.log_probabilities[i] : nullptr);
  }
  count(std::min(result_.tokens.size() - before, draws.tokens.size() - 1));
  if (!finish_ && room() == 0) {
    const int full = int(history_.size());
    if (!drop_half())
      finish_ = Finish::full;
    else if (o_.on_drop)
      o_.on_drop(full - int(history_.size()), kept(), int(history_.size()) - kept());
  }
  result_.decode_seconds = seconds_since(decoding_);
  return finish_;
}

void Request::learn(const Draws& draws) {
  const int right = int(draws.tokens.size()) - 1;
  if (from_grammar_) return grammar_->learn(int(draft_.nodes.size()), right);
  if (!o_.governor || !looked_for_draft_) return;
  Governor::Outcome o{kind_, int(draft_.nodes.size()), draft_.depths(), 0,
                      right, draft_seconds_,           drafter_read_};
  for (size_t i = 0; i < first_draft_.size(); ++i) {
    o.places[i] = std::max(o.places[i], 1);
    if (first_draft_[i] == draws.tokens[0]) o.which = int(i), o.right = std::max(right, 1);
  }
  o_.governor->learn(o);
}

void Request::count(size_t accepted) {
  result_.drafted += int(draft_.nodes.size()), result_.accepted += int(accepted);
  for (size_t i = 0; i < draft_.nodes.size(); ++i) {
    const auto place = size_t(Draft::depth(draft_.nodes, int(i)));
    result_.drafted_at.resize(std::max(result_.drafted_at.size(), place + 1));
    ++result_.drafted_at[place];
  }
  result_.accepted_at.resize(result_.drafted_at.size());
  for (size_t i = 0; i < accepted; ++i) ++result_.accepted_at[i];
}

// Appends a token and sends it and its text.
std::optional<Finish> Request::take(TokenId token, const LogProbabilities* log_probabilities) {
  if (o_.max_tokens == 0) return Finish::length;
  if (engine_.tokenizer().is_end(token) && !o_.ignore_end) return Finish::end;
  history_.push_back(token);
  result_.tokens.push_back(token);
  if (log_probabilities) result_.log_probabilities.push_back(*log_probabilities);
  if (grammar_) grammar_->take(token);
  if (o_.on_token) o_.on_token(token, log_probabilities);
  show(text_.push(token));
  if (text_.stopped()) return Finish::stop;
  if (grammar_ && grammar_->is_over()) return Finish::end;
  if (o_.max_tokens >= 0 && int(result_.tokens.size()) >= o_.max_tokens) return Finish::length;
  return std::nullopt;
}

void Request::show(const std::string& text) {
  if (text.empty()) return;
  result_.text += text;
  sink_(text);
}

bool Request::complete() {
  if (!grammar_) return true;
  try {  // a grammar that is too large to follow must not cost the answer
    // The tokens of a stop string are not part of the text.
    return finish_ == Finish::stop ? grammar_->accepts(result_.text) : grammar_->may_end();
  } catch (const Error&) {
    return false;
  }
}

GenerateResult Request::finished() {
  show(text_.flush());
  if (finish_) result_.finish = *finish_;
  result_.complete = complete();
  if (o_.governor) result_.speed_up = o_.governor->speed_up();
  if (o_.drafter && !o_.drafter->costs_nothing() && o_.draft_length > 0 && result_.drafted == 0)
    result_.no_draft = !drafter_ || drafter_asked_               ? NoDraft::other
                       : result_.passes <= Governor::kPlainFirst ? NoDraft::early
                                                                 : NoDraft::no_gain;
  if (scored_ > 0) result_.mean_log_probability = log_probability_ / scored_;
  return std::move(result_);
}

}  // namespace chaski
