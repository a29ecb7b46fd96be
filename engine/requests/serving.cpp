#include "engine/requests/serving.h"

#include <chrono>
#include <optional>
#include <set>
#include <utility>

namespace chaski {

namespace {

using Kind = RequestEvent::Kind;

constexpr size_t kQueue = 1024;                        // events
constexpr std::chrono::milliseconds kInterrupted(20);  // between looks at interrupt flags

// A RequestEvent that owns what it points to.
struct Event {
  size_t which;
  Kind kind;
  std::string text;
  TokenId token;
  std::optional<LogProbabilities> log_probabilities;
  int known, all, kept;
  bool first = false;  // of the progress of reading
  std::optional<GenerateResult> result;
  std::optional<Error> error;

  Event(size_t which, const RequestEvent& e)
      : which(which),
        kind(e.kind),
        text(e.text),
        token(e.token),
        known(e.known),
        all(e.all),
        kept(e.kept) {
    if (e.log_probabilities) log_probabilities = *e.log_probabilities;
    if (e.result) result = *e.result;
    if (e.error) error = *e.error;
  }
};

// The thread of the passes puts events into it; the receiver takes all of them at once.
class Queue {
 public:
  const std::shared_ptr<std::atomic<bool>> full = std::make_shared<std::atomic<bool>>(false);

  void put(size_t which, const RequestEvent& e) {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    // Of the progress of reading, only the first and the last are of use. The first one has the
    // tokens that the prefix cache had.
    const bool is_first = e.kind == Kind::reading && reads_.insert(which).second;
    if (e.kind == Kind::reading && !events_.empty() && events_.back().kind == Kind::reading &&
        events_.back().which == which && !events_.back().first)
      events_.pop_back();
    events_.emplace_back(which, e);
    events_.back().first = is_first;
    if (events_.size() >= kQueue) *full = true;
    filled_.notify_one();
  }
  // Waits for events, at most kInterrupted.
  std::vector<Event> take() {
    std::unique_lock lock(mutex_);
    filled_.wait_for(lock, kInterrupted, [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    events_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<Event> events_;
  std::set<size_t> reads_;  // which of the requests have begun to read
  bool closed_ = false;
};

// The requests of one call. Its end cancels those that have not ended.
class Requests {
 public:
  Requests(Inbox& inbox, std::span<const GenerateOptions> options)
      : inbox_(inbox), options_(options), results_(options.size()) {}
  ~Requests() {
    queue_->close();
    if (ended_ < ids_.size()) cancel();
    release();
  }
  Requests(const Requests&) = delete;

  void add(std::span<const TokenId> prompt, int priority) {
    for (size_t i = 0; i < options_.size(); ++i) {
      ENSURE(!options_[i].grammar, "an inbox compiles the rules itself");
      ids_.push_back(inbox_.add(
          {.prompt = {prompt.begin(), prompt.end()},
           .settings = options_[i],
           .rules = options_[i].rules,
           .priority = priority,
           .hold = queue_->full,
           .on_event = [queue = queue_, i](const RequestEvent& e) { queue->put(i, e); }}));
    }
  }
  std::vector<GenerateResult> wait(const std::function<void(size_t, std::string_view)>& sink) {
    while (ended_ < ids_.size()) {
      if (interrupted()) cancel();
      for (Event& event : queue_->take()) use(event, sink);
      release();
    }
    return std::move(results_);
  }

 private:
  bool interrupted() const {
    for (const GenerateOptions& o : options_)
      for (const auto* const flag : {o.interrupt, o.also_interrupt})
        if (flag && flag->load()) return true;
    return false;
  }
  void cancel() {
    if (std::exchange(cancelled_, true)) return;
    for (const Inbox::Id id : ids_) inbox_.cancel(id);
  }
  void release() {
    if (queue_->full->exchange(false)) inbox_.resume();
  }
  void use(Event& e, const std::function<void(size_t, std::string_view)>& sink) {
    const GenerateOptions& o = options_[e.which];
    switch (e.kind) {
      case Kind::reading:
        if (o.on_read) o.on_read(e.known, e.all);
        return;
      case Kind::token:
        if (o.on_token) o.on_token(e.token, e.log_probabilities ? &*e.log_probabilities : nullptr);
        return;
      case Kind::text:
        return sink(e.which, e.text);
      case Kind::dropped:
        if (o.on_drop) o.on_drop(e.known, e.kept, e.all);
        return;
      case Kind::drafter_lost:
        if (o.on_drafter_lost) o.on_drafter_lost(e.text);
        return;
      case Kind::finish:
        results_[e.which] = *std::move(e.result);
        ++ended_;
        return;
      case Kind::error:
        ++ended_;
        throw *e.error;
    }
  }

  Inbox& inbox_;
  const std::span<const GenerateOptions> options_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::vector<Inbox::Id> ids_;
  std::vector<GenerateResult> results_;
  size_t ended_ = 0;
  bool cancelled_ = false;
};

}  // namespace

GenerateResult generate(Inbox& inbox, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink, int priority) {
  return std::move(generate_all(
      inbox, prompt, {&options, 1}, [&](size_t, std::string_view text) { sink(text); },
      priority)[0]);
}

std::vector<GenerateResult> generate_all(
    Inbox& inbox, std::span<const TokenId> prompt, std::span<const GenerateOptions> options,
    const std::function<void(size_t which, std::string_view text)>& sink, int priority) {
  Requests requests(inbox, options);
  requests.add(prompt, priority);
  return requests.wait(sink);
}

}  // namespace chaski
