#include "engine/requests/inbox.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "engine/pages/kv_cache.h"

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

Inbox::Inbox(std::shared_ptr<LoadedModel> model, int budget, double most_slowdown,
             std::shared_ptr<Turns> turns)
    : model_(std::move(model)),
      budget_(budget),
      most_slowdown_(most_slowdown),
      turns_(std::move(turns)),
      thread_([this] { work(); }) {}

Inbox::~Inbox() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    for (auto& [id, flag] : cancel_flags_) *flag = true;
    abandon_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Inbox::Id Inbox::add(Job job) {
  auto entry = std::make_unique<Entry>();
  if (job.rules) entry->grammar = model_->grammar(job.rules);
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
  const auto found = cancel_flags_.find(id);
  if (found == cancel_flags_.end()) return;
  *found->second = true;
  abandon_ = true, woken_ = true;
  changed_.notify_all();
}

void Inbox::resume() {
  const std::scoped_lock lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void Inbox::run(const std::function<void(Engine& engine)>& work) {
  std::packaged_task<void()> task([&] { work(*model_->engine()); });
  std::future<void> done = task.get_future();
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  done.get();
}

void Inbox::read(const Reading& work, const std::atomic<bool>& gone) {
  std::list<Reader> mine;
  std::future<void> over = mine.emplace_back(work, gone).over.get_future();
  {
    const std::scoped_lock lock(mutex_);
    readers_.splice(readers_.end(), mine);
    changed_.notify_all();
  }
  over.get();
}

Inbox::Counts Inbox::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

Inbox::Facts Inbox::facts() const {
  const std::scoped_lock lock(mutex_);
  Facts facts = facts_;
  facts.counts = counts_;
  return facts;
}

void Inbox::wait_until_idle() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {  // also for the facts after the last pass
    return counts_.ended == counts_.added && counts_.running + counts_.waiting == 0;
  });
}

// Makes the request of an entry. Its errors, such as a prompt that is too long, are its own.
void Inbox::begin(Entry& entry) {
  GenerateOptions options;
  static_cast<RequestSettings&>(options) = entry.job.settings;
  entry.drafter = model_->drafter(options.sampling);
  options.grammar = entry.grammar.get(), options.drafter = entry.drafter.get();
  options.draft_length = model_->draft_length();
  if (entry.drafter) options.governor = &entry.governor;
  options.interrupt = entry.cancelled.get(), options.hold = entry.job.hold.get();
  options.on_read = [&entry](int known, int all) {
    entry.send({.kind = RequestEvent::Kind::reading, .known = known, .all = all});
  };
  options.on_drop = [&entry](int dropped, int before, int after) {
    entry.send(
        {.kind = RequestEvent::Kind::dropped, .known = dropped, .all = after, .kept = before});
  };
  options.on_drafter_lost = [&entry](const std::string& why) {
    entry.send({.kind = RequestEvent::Kind::drafter_lost, .text = why});
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
  earlier_ = earlier_ + scheduler_->totals();
  scheduler_ = std::make_unique<Scheduler>(model_->engine(), budget_, most_slowdown_, &abandon_);
  for (const auto& [request, entry] : std::exchange(entries_, {})) end(*entry, &error);
}

// Publishes counts, pages and sequences as they are after the last pass.
void Inbox::publish() {
  Facts facts;
  facts.totals = earlier_ + scheduler_->totals();
  const Engine& engine = *model_->engine();
  const KvCache& kv = engine.kv_cache();
  const bool grows = engine.device() == "cpu";
  facts.pages.most_idle_bytes = engine.most_idle_bytes();
  for (size_t i = 0; i < kv.pools.size(); ++i) {
    const KvPool& pool = kv.pools[i];
    const int64_t taken = grows ? pool.in_use() + pool.spare() : pool.size();
    const size_t page = kv.states.pools[i].page_bytes;
    facts.pages.bytes += uint64_t(taken) * page;
    facts.pages.idle_bytes += uint64_t(pool.idle()) * page;
    facts.pages.total += pool.size(), facts.pages.used += pool.in_use();
    facts.pages.shared += pool.shared(), facts.pages.idle += pool.idle();
    facts.pages.evicted += pool.evicted();
  }
  for (const auto& [request, entry] : entries_) {
    const GenerateResult& so_far = request->so_far();
    facts.sequences.push_back({entry->id, so_far.prompt_tokens, so_far.known_tokens,
                               so_far.cached_tokens, int(so_far.tokens.size())});
  }
  std::ranges::sort(facts.sequences, {}, &Sequence::id);
  const std::scoped_lock lock(mutex_);
  facts_ = std::move(facts);
  counts_.waiting = scheduler_->waiting() + int(arrived_.size());
  counts_.running = scheduler_->running();
  counts_.tokens = tokens_, counts_.passes = facts_.totals.passes;
  changed_.notify_all();
}

void Inbox::make_pass() {
  const Turn turn(turns_.get());
  scheduler_->set_shared(turns_ && turns_->is_shared());
  try {
    scheduler_->step();
  } catch (const Error& error) {
    return end_all(error);
  }
  for (const Request* ended : scheduler_->ended()) {
    const auto entry = entries_.extract(ended);
    end(*entry.mapped(), ended->error ? &*ended->error : nullptr);
  }
}

// Never throws: an error of a reader's work goes to the reader, and nothing else allocates memory.
void Inbox::read_portion() {
  std::list<Reader> first;
  {
    const std::scoped_lock lock(mutex_);
    if (readers_.empty()) return;
    const auto gone = std::ranges::find_if(readers_, [](const Reader& r) { return r.gone.load(); });
    first.splice(first.end(), readers_, gone == readers_.end() ? readers_.begin() : gone);
  }
  Reader& reader = first.front();
  try {
    const Turn turn(turns_.get());
    const auto start = std::chrono::steady_clock::now();
    const Portion portion = reader.work(*model_->engine(), scheduler_->portion_aside());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    scheduler_->learn_aside(portion.tokens, took.count());
    {
      const std::scoped_lock lock(mutex_);
      ++counts_.aside_passes, counts_.aside_tokens += portion.tokens;
      counts_.aside_seconds += took.count();
    }
    if (portion.last) return reader.over.set_value();
  } catch (...) {
    return reader.over.set_exception(std::current_exception());
  }
  const std::scoped_lock lock(mutex_);
  readers_.splice(readers_.end(), first);
}

void Inbox::work() {
  scheduler_ = std::make_unique<Scheduler>(model_->engine(), budget_, most_slowdown_, &abandon_);
  bool busy = false;
  for (;;) {
    publish();
    if (turns_ && busy == entries_.empty()) turns_->add_busy(busy ? -1 : 1), busy = !busy;
    std::vector<std::unique_ptr<Entry>> arrived;
    std::vector<std::packaged_task<void()>> tasks;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        const bool works = !entries_.empty() && (!scheduler_->stalled() || woken_);
        return stop_ || !arrived_.empty() || !tasks_.empty() || !readers_.empty() || works;
      });
      if (stop_ && arrived_.empty() && tasks_.empty() && readers_.empty() && entries_.empty())
        break;
      arrived.swap(arrived_), tasks.swap(tasks_);
      woken_ = false;
    }
    abandon_ = false;
    for (std::unique_ptr<Entry>& entry : arrived) try {
        begin(*entry);
        entries_.emplace(entry->request.get(), std::move(entry));
      } catch (const Error& error) {
        end(*entry, &error);
      }
    for (std::packaged_task<void()>& task : tasks) {
      const Turn turn(turns_.get());
      task();
    }
    read_portion();
    if (!entries_.empty()) make_pass();
  }
  scheduler_.reset();
}

}  // namespace chaski
