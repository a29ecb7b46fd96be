#include "main/serve/models.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "engine/requests/embedding.h"
#include "engine/requests/prompt_scores.h"
#include "engine/session/memory_need.h"
#include "engine/session/watched_reading.h"
#include "engine/shelf/model_file.h"
#include "main/api/routes.h"
#include "main/serve/model_errors.h"

namespace chaski {

namespace {

constexpr std::string_view kLatest = ":latest";
constexpr double kMostKeep = 1e9;  // seconds: a clock in nanoseconds holds nine times as many

double seconds_from(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string in_megabytes(uint64_t bytes) { return fmt::format("{:.1f} MB", double(bytes) / 1e6); }

}  // namespace

Models::Models(std::vector<NamedModel> models, const ModelsOptions& options, Hooks hooks)
    : options_(options), hooks_(std::move(hooks)) {
  for (NamedModel& model : models) {
    for (const auto& entry : entries_)
      if (entry->model.name == model.name)
        fail(Exit::usage, "two models have the name {}, expected NAME=MODEL with another name",
             escaped(model.name));
    const OpenModel header = open_model(model.engine.model, model.engine.tokenizer);
    auto entry = std::make_unique<Entry>();
    entry->facts = facts_of(header.source, model.engine.context);
    entry->created = unix_time(), entry->keep = options.keep;
    entry->model = std::move(model);
    entries_.push_back(std::move(entry));
  }
  thread_ = std::thread([this] { work(); });
}

Models::~Models() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// The first one that generates text, if there is one.
Models::Entry& Models::first() const {
  const auto at = std::ranges::find_if(entries_, [](const auto& e) { return e->model.generates; });
  return at == entries_.end() ? *entries_[0] : **at;
}

// A name of ollama may end in ":latest".
Models::Entry& Models::find(const std::string& name) const {
  if (name.empty() || name == "default") return first();
  const std::string other = name.ends_with(kLatest) ? name.substr(0, name.size() - kLatest.size())
                                                    : name + std::string(kLatest);
  for (const std::string& wanted : {name, other})
    for (const auto& entry : entries_)
      if (entry->model.name == wanted) return *entry;
  if (options_.any_name) return first();
  throw ApiError(
      404, "invalid_request_error", "model_not_found",
      fmt::format("model is {}, expected {}{}", escaped(name),
                  entries_.size() > 1 ? "a name of /v1/models, such as " : "", first().model.name),
      "model");
}

// A request that waits for a model. It must be over before the model is used. The lock is held when
// it begins and at over(), and held or not when it ends.
class Models::Waiter {
 public:
  Waiter(Models& models, std::shared_ptr<Load> load, std::unique_lock<std::mutex>& lock)
      : models_(models), lock_(lock), load_(std::move(load)) {
    ++load_->waiters;
  }
  void over() { over_ = true; }
  ~Waiter() {
    if (over_) return;
    if (!lock_.owns_lock()) lock_.lock();
    if (!load_->over) {
      --load_->waiters;
      models_.changed_.notify_all();
    } else if (!load_->error) {  // the use that was counted for it
      models_.release_locked(*load_->entry);
    }
  }
  Waiter(const Waiter&) = delete;

 private:
  Models& models_;
  std::unique_lock<std::mutex>& lock_;
  const std::shared_ptr<Load> load_;
  bool over_ = false;
};

std::shared_ptr<const ServedModel> Models::acquire(
    const ModelWish& wish, const std::function<void(const ModelState& model)>& waits) {
  const Entry& entry = find(wish.name);
  try {
    return get(wish, waits);
  } catch (...) {
    std::rethrow_exception(
        as_api_error(entry.model.name, entry.facts.path, std::current_exception()));
  }
}

std::shared_ptr<const ServedModel> Models::get(
    const ModelWish& wish, const std::function<void(const ModelState& model)>& waits) {
  std::unique_lock lock(mutex_);
  Entry& entry = find(wish.name);
  entry.keep = wish.keep.value_or(options_.keep);
  if (entry.open && !entry.leaving) {
    ++entry.users;
    return use(entry, lock);
  }
  if (!entry.load) {
    queue_.push_back(std::make_shared<Load>(Load{.entry = &entry}));
    entry.load = queue_.back();
  }
  const std::shared_ptr<Load> load = entry.load;
  Waiter waiter(*this, load, lock);
  changed_.notify_all();
  while (!load->over) {
    if (changed_.wait_for(lock, kLook, [&] { return load->over; })) break;
    const ModelState state = state_of(entry);
    lock.unlock();
    waits(state);
    lock.lock();
  }
  waiter.over();
  if (load->error) std::rethrow_exception(load->error);
  return use(entry, lock);
}

// The use is counted already. Gives the lock back.
std::shared_ptr<const ServedModel> Models::use(Entry& entry, std::unique_lock<std::mutex>& lock) {
  entry.used = ++uses_;
  entry.expires.reset();
  entry.why_unloaded.clear();
  return pointer_to(entry, lock);
}

// As use(), but the model is not kept longer for it. Without memory for the pointer its deleter
// runs at once, and locks.
std::shared_ptr<const ServedModel> Models::pointer_to(Entry& entry,
                                                      std::unique_lock<std::mutex>& lock) {
  const ServedModel* const served = &entry.open->served;
  lock.unlock();
  return {served, [this, &entry](const ServedModel*) { release(entry); }};
}

void Models::release(Entry& entry) {
  const std::scoped_lock lock(mutex_);
  release_locked(entry);
}

void Models::release_locked(Entry& entry) {
  if (--entry.users == 0 && !entry.expires) entry.expires = end_of(entry.keep);
  changed_.notify_all();
}

// Of a model that is used until now.
std::optional<Models::Clock::time_point> Models::end_of(double keep) {
  if (keep < 0) return std::nullopt;
  const std::chrono::duration<double> time(std::min(keep, kMostKeep));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

uint64_t Models::bytes_of(const Entry& entry) {
  if (!entry.open) return 0;
  const uint64_t weights = entry.facts.bytes;
  return std::max(entry.open->reserved, weights + entry.open->inbox->facts().pages.bytes);
}

ModelState Models::state_of(const Entry& entry) const {
  using Kind = ModelState::Kind;
  ModelState state;
  state.name = entry.model.name, state.created = entry.created, state.facts = entry.facts;
  state.embeds = entry.model.embeds, state.generates = entry.model.generates;
  state.last_error = entry.last_error;
  state.kind = entry.open ? Kind::loaded : entry.load ? Kind::loading : Kind::unloaded;
  if (entry.load) state.progress = entry.load->progress;
  if (!entry.open) return state;
  state.bytes = bytes_of(entry);
  state.on_device = entry.open->served.engine().device() != "cpu";
  if (entry.expires)
    state.expires_at =
        unix_time() +
        std::chrono::duration_cast<std::chrono::seconds>(*entry.expires - Clock::now()).count();
  else if (entry.keep >= 0)
    state.expires_at = unix_time() + int64_t(std::min(entry.keep, kMostKeep));
  return state;
}

ModelHeader Models::header(const std::string& name) {
  std::unique_lock lock(mutex_);
  Entry& entry = find(name);
  const ModelState state = state_of(entry);
  ModelHeader header;
  if (entry.open && !entry.leaving) {
    ++entry.users;
    header = header_of(pointer_to(entry, lock));
    header.state = state;
  } else {
    lock.unlock();
    try {
      header = header_of(state, entry.model.engine.tokenizer);
    } catch (...) {
      std::rethrow_exception(
          as_api_error(entry.model.name, entry.facts.path, std::current_exception()));
    }
    header.defaults = entry.model.defaults, header.chat_template = entry.model.chat_template;
  }
  return header;
}

std::string Models::unload(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  Entry& entry = find(name);
  entry.keep = 0;
  if (entry.users == 0) entry.expires = Clock::now();
  if (entry.open) entry.why_unloaded = "request";
  changed_.notify_all();
  return entry.model.name;
}

std::vector<ModelState> Models::states() const {
  const std::scoped_lock lock(mutex_);
  std::vector<ModelState> states;
  for (const auto& entry : entries_) states.push_back(state_of(*entry));
  return states;
}

std::vector<Models::Figures> Models::figures() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Figures> all;
  for (const auto& entry : entries_)
    all.push_back({state_of(*entry), entry->open ? entry->open->inbox->facts() : Inbox::Facts(),
                   entry->loads, entry->unloads, entry->failures});
  return all;
}

namespace {

// Adds what is counted. What is there only as long as a model is open is added if `open`.
void add_facts(Inbox::Facts& sum, const Inbox::Facts& more, bool open) {
  sum.counts.added += more.counts.added, sum.counts.ended += more.counts.ended;
  sum.counts.passes += more.counts.passes, sum.counts.tokens += more.counts.tokens;
  sum.counts.aside_passes += more.counts.aside_passes;
  sum.counts.aside_tokens += more.counts.aside_tokens;
  sum.counts.aside_seconds += more.counts.aside_seconds;
  const int width = sum.totals.width;
  sum.totals = sum.totals + more.totals;
  sum.totals.width = open ? width + more.totals.width : 0;
  sum.pages.evicted += more.pages.evicted;
  if (!open) return;
  sum.counts.waiting += more.counts.waiting, sum.counts.running += more.counts.running;
  sum.pages.total += more.pages.total, sum.pages.used += more.pages.used;
  sum.pages.shared += more.pages.shared, sum.pages.idle += more.pages.idle;
  sum.pages.bytes += more.pages.bytes, sum.pages.idle_bytes += more.pages.idle_bytes;
  sum.pages.most_idle_bytes += more.pages.most_idle_bytes;
}

}  // namespace

Inbox::Facts Models::facts() const {
  const std::scoped_lock lock(mutex_);
  Inbox::Facts sum = earlier_;
  for (const auto& entry : entries_)
    if (entry->open) add_facts(sum, entry->open->inbox->facts(), true);
  return sum;
}

DiskCache::Facts Models::cache_facts() const {
  const std::scoped_lock lock(mutex_);
  DiskCache::Facts sum = earlier_cache_;
  for (const auto& entry : entries_)
    if (entry->open && entry->open->cache) sum = sum + entry->open->cache->facts();
  return sum;
}

void Models::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (Entry* const entry = to_close()) {
      close(*entry, lock);
    } else if (queue_.empty() || !go_on(queue_.front(), lock)) {
      std::optional<Clock::time_point> next;
      for (const auto& entry : entries_)
        if (entry->open && entry->users == 0 && entry->expires)
          next = next ? std::min(*next, *entry->expires) : *entry->expires;
      next ? void(changed_.wait_until(lock, *next)) : changed_.wait(lock);
    }
  }
  const auto stopped = std::make_exception_ptr(OpenAbandoned());
  while (!queue_.empty()) end(*queue_.front(), stopped, lock);
  for (const auto& entry : entries_)
    if (entry->open) close(*entry, lock);
}

// A model that no request uses and whose time is over, or whose memory is needed; null: none.
Models::Entry* Models::to_close() {
  uint64_t all = 0, newest = 0;
  for (const auto& entry : entries_) {
    all += bytes_of(*entry);
    if (entry->open) newest = std::max(newest, entry->used);
  }
  Entry* oldest = nullptr;
  for (const auto& entry : entries_) {
    if (!entry->open || entry->users > 0) continue;
    if (entry->leaving) return entry.get();
    if (entry->expires && *entry->expires <= Clock::now()) {
      if (entry->why_unloaded.empty()) entry->why_unloaded = "keep_alive";
      return entry.get();
    }
    if (entry->used < newest && (!oldest || entry->used < oldest->used)) oldest = entry.get();
  }
  // KV caches have grown since the models were opened.
  if (options_.most_bytes == 0 || all <= options_.most_bytes || !oldest) return nullptr;
  oldest->why_unloaded = "memory";
  return oldest;
}

void Models::close(Entry& entry, std::unique_lock<std::mutex>& lock) {
  const Clock::time_point start = Clock::now();
  ModelEvent event{ModelEvent::Kind::unloaded, entry.model.name,
                   std::exchange(entry.why_unloaded, "")};
  event.bytes = bytes_of(entry);
  std::unique_ptr<Open> open = std::move(entry.open);
  entry.leaving = false;
  entry.expires.reset();
  ++entry.unloads;
  add_facts(earlier_, open->inbox->facts(), false);
  if (open->cache) earlier_cache_ = earlier_cache_ + open->cache->facts();
  lock.unlock();
  open.reset();
  // What malloc keeps of vocabularies and indexes goes back to the system too.
  ::malloc_trim(0);
  event.seconds = seconds_from(start);
  if (hooks_.on_event && !event.why.empty()) hooks_.on_event(event);
  lock.lock();
  changed_.notify_all();
}

// One step of the first load of the queue. False if it has to wait.
bool Models::go_on(std::shared_ptr<Load> load, std::unique_lock<std::mutex>& lock) {
  if (load->waiters == 0) {  // all have gone
    load->entry->load.reset();
    leave_queue();
  } else if (!load->need && options_.most_bytes > 0) {
    measure(*load, lock);
  } else if (make_room(*load)) {
    open(*load, lock);
  } else {
    return to_close() != nullptr;
  }
  return true;
}

void Models::measure(Load& load, std::unique_lock<std::mutex>& lock) {
  const EngineOptions options = load.entry->model.engine;
  uint64_t need = 0;
  std::exception_ptr error;
  lock.unlock();
  try {
    need = memory_when_open(open_model(options.model, options.tokenizer).source, options);
    if (options_.refuses_more && need > options_.most_bytes)
      throw ModelTooLarge(
          Exit::memory,
          fmt::format("the model {} needs {} of memory, but the models of this server "
                      "may have {} together (--models-memory)",
                      load.entry->model.name, in_megabytes(need),
                      in_megabytes(options_.most_bytes)));
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) return end(load, error, lock);
  load.need = need;
}

// True if there is room. Else marks the models that have to be closed.
bool Models::make_room(const Load& load) {
  uint64_t all = 0, staying = 0;
  for (const auto& entry : entries_) {
    const uint64_t bytes = bytes_of(*entry);
    all += bytes;
    if (!entry->leaving) staying += bytes;
  }
  const uint64_t most = options_.most_bytes;
  if (most == 0 || all == 0 || all + *load.need <= most) return true;
  while (staying > 0 && staying + *load.need > most) {
    Entry* first = nullptr;
    for (const auto& entry : entries_) {
      if (!entry->open || entry->leaving) continue;
      const auto turn = [](const Entry& e) { return std::pair(e.users > 0, e.used); };
      if (!first || turn(*entry) < turn(*first)) first = entry.get();
    }
    first->leaving = true, first->why_unloaded = "memory";
    staying -= bytes_of(*first);
  }
  return false;
}

// The first load of the queue is over. Models that were to make room for it stay, and requests that
// wait for them use them.
void Models::leave_queue() {
  queue_.pop_front();
  for (const auto& entry : entries_) {
    if (stop_ || !entry->leaving) continue;
    entry->leaving = false;
    entry->why_unloaded.clear();
    const std::shared_ptr<Load> load = std::exchange(entry->load, nullptr);
    if (!load) continue;
    std::erase(queue_, load);
    entry->users += load->waiters;
    load->over = true;
  }
  changed_.notify_all();
}

std::unique_ptr<Models::Open> Models::opened(Load& load) {
  const Entry& entry = *load.entry;
  auto open = std::make_unique<Open>();
  const auto progress = [&](double done) {
    const std::scoped_lock lock(mutex_);
    if (stop_) throw OpenAbandoned();
    load.progress = std::max(load.progress, done);
  };
  progress(0);
  const WatchedReading reading(
      [&](uint64_t done, uint64_t all) { progress(all > 0 ? double(done) / double(all) : 0); });
  open->served = entry.model.open(progress);
  open->served.name = entry.model.name, open->served.created = entry.created;
  open->reserved = load.need.value_or(0);
  open->inbox = std::make_unique<Inbox>(open->served.model, 0, options_.most_slowdown, turns_);
  Inbox& inbox = *open->inbox;
  if (hooks_.open_cache) open->cache = hooks_.open_cache(inbox);
  open->served.generate = [this, &inbox, cache = open->cache.get()](std::span<const TokenId> prompt,
                                                                    const GenerateOptions& o,
                                                                    const Sink& sink) {
    return advised([&] { return hooks_.generate(inbox, cache, prompt, o, sink); });
  };
  open->served.score = [&inbox](std::span<const TokenId> tokens, int most,
                                const std::atomic<bool>& gone) {
    return advised([&] { return prompt_scores(inbox, tokens, most, gone); });
  };
  if (entry.model.embeds)
    open->served.embed = [&inbox](std::span<const std::vector<TokenId>> texts,
                                  const std::atomic<bool>& gone) {
      return advised([&] { return embeddings(inbox, texts, gone); });
    };
  return open;
}

void Models::open(Load& load, std::unique_lock<std::mutex>& lock) {
  const Clock::time_point start = Clock::now();
  std::unique_ptr<Open> open;
  std::exception_ptr error;
  lock.unlock();
  try {
    open = opened(load);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) return end(load, error, lock);
  Entry& entry = *load.entry;
  entry.open = std::move(open);
  entry.facts.context = entry.open->served.engine().context_length();
  entry.users += load.waiters;
  entry.used = ++uses_;
  ++entry.loads;
  if (entry.users == 0) entry.expires = end_of(entry.keep);
  ModelEvent event{ModelEvent::Kind::loaded, entry.model.name};
  event.bytes = bytes_of(entry), event.seconds = seconds_from(start);
  end(load, nullptr, lock);
  if (!hooks_.on_event) return;
  lock.unlock();
  hooks_.on_event(event);
  lock.lock();
}

// The load is the first of the queue.
void Models::end(Load& load, std::exception_ptr error, std::unique_lock<std::mutex>& lock) {
  Entry& entry = *load.entry;
  const std::shared_ptr<Load> kept = std::move(entry.load);
  entry.last_error.reset();
  load.over = true;
  if (error) {
    load.error = error;
    entry.last_error = text_of_error(error);
    ++entry.failures;
  }
  leave_queue();
  if (!error || stop_ || !hooks_.on_event) return;
  const ModelEvent event{ModelEvent::Kind::failed, entry.model.name, *entry.last_error};
  lock.unlock();
  hooks_.on_event(event);
  lock.lock();
}

}  // namespace chaski
