#include "engine/requests/inbox.h"

#include <utility>

namespace chaski {

struct Inbox::Entry {
  Id id;
  Job job;
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::shared_ptr<Grammar> grammar;
  std::unique_ptr<Drafter> drafter;
  Governor governor;
  std::unique_ptr<Request> request;

  void send(const RequestEvent& event) const {
    if (job.on_event) job.on_event(event);
  }
};

Inbox::Inbox(std::shared_ptr<LoadedModel> model, int budget)
    : model_(std::move(model)), budget_(budget), thread_([this] { work(); }) {}

Inbox::~Inbox() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    for (auto& [id, flag] : cancel_flags_) *flag = true;
  }
  changed_.notify_all();
  thread_.join();
}

Inbox::Id Inbox::add(Job job) {
  auto entry = std::make_unique<Entry>();
  entry->job = std::move(job);
  entry->cancelled = std::make_shared<std::atomic<bool>>(false);
  const std::scoped_lock lock(mutex_);
  const Id id = entry->id = Id(++counts_.added);
  *entry->cancelled = stop_;
  cancel_flags_.emplace(id, entry->cancelled);
  arrived_.push_back(std::move(entry));
  ++counts_.waiting;
  changed_.notify_all();
  return id;
}

void Inbox::cancel(Id id) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = cancel_flags_.find(id); found != cancel_flags_.end())
    *found->second = true;
}

Inbox::Counts Inbox::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

void Inbox::wait_until_idle() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return counts_.ended == counts_.added; });
}

// Makes the request of an entry. Its errors, such as a prompt that is too long, are its own.
void Inbox::begin(Entry& entry) {
  GenerateOptions options;
  static_cast<RequestSettings&>(options) = entry.job.settings;
  if (entry.job.rules) entry.grammar = model_->grammar(entry.job.rules);
  entry.drafter = model_->drafter(options.sampling);
  options.grammar = entry.grammar.get(), options.drafter = entry.drafter.get();
  options.draft_length = model_->draft_length();
  if (entry.drafter) options.governor = &entry.governor;
  options.interrupt = entry.cancelled.get();
  options.on_read = [&entry](int known, int all) {
    entry.send({.kind = RequestEvent::Kind::reading, .known = known, .all = all});
  };
  options.on_token = [this, &entry](TokenId token, const LogProbabilities* log_probabilities) {
    ++tokens_;
    entry.send({.kind = RequestEvent::Kind::token,
                .token = token,
                .log_probabilities = log_probabilities});
  };
  entry.request = std::make_unique<Request>(
      *model_->engine(), entry.job.prompt, options, [&entry](std::string_view text) {
        entry.send({.kind = RequestEvent::Kind::text, .text = text});
      });
  scheduler_->add(*entry.request, entry.job.priority);
}

// Sends the last event of a request. An Error of the receiver has nothing left to end.
void Inbox::end(Entry& entry, const Error* error) {
  try {
    if (error) {
      entry.send({.kind = RequestEvent::Kind::error, .error = error});
    } else {
      const GenerateResult result = entry.request->finished();
      entry.send({.kind = RequestEvent::Kind::finish, .result = &result});
    }
  } catch (const Error&) {
  }
  const std::scoped_lock lock(mutex_);
  cancel_flags_.erase(entry.id);
  ++counts_.ended;
}

// After an error of a pass, which no request has caused alone.
void Inbox::end_all(const Error& error) {
  scheduler_ = std::make_unique<Scheduler>(model_->engine(), budget_);
  for (const auto& [request, entry] : std::exchange(entries_, {})) end(*entry, &error);
}

void Inbox::work() {
  scheduler_ = std::make_unique<Scheduler>(model_->engine(), budget_);
  for (;;) {
    std::vector<std::unique_ptr<Entry>> arrived;
    {
      std::unique_lock lock(mutex_);
      counts_.waiting = scheduler_->waiting() + int(arrived_.size());
      counts_.running = scheduler_->running();
      counts_.tokens = tokens_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return stop_ || !arrived_.empty() || !entries_.empty(); });
      if (stop_ && arrived_.empty() && entries_.empty()) break;
      arrived.swap(arrived_);
    }
    for (std::unique_ptr<Entry>& entry : arrived) try {
        begin(*entry);
        entries_.emplace(entry->request.get(), std::move(entry));
      } catch (const Error& error) {
        end(*entry, &error);
      }
    if (entries_.empty()) continue;
    try {
      scheduler_->step();
    } catch (const Error& error) {
      end_all(error);
      continue;
    }
    for (const Request* ended : scheduler_->ended()) {
      const auto entry = entries_.extract(ended);
      end(*entry.mapped(), ended->error ? &*ended->error : nullptr);
    }
    const std::scoped_lock lock(mutex_);
    ++counts_.passes;
  }
  scheduler_.reset();
}

}  // namespace chaski
