// The models of the server by name. A model is opened when a request asks for it, and closed when
// its time is over or others need its memory, but never while a request uses it. One thread opens
// and closes, one model at a time.
//
// When a model is to be opened and the limit is reached, others are closed: first those that no
// request uses, the least recently used first. If that is not enough, models that are used get no
// new requests, and are closed after the running ones; their new requests wait until they are open
// again. So a model that is always in use does not keep others out.
//
// Each model has its own engine, KV cache and thread of passes. The passes of all models take turns
// (engine/requests/turns.h), because the engines share the threads of the CPU.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/requests/disk_cache.h"
#include "engine/requests/inbox.h"
#include "main/api/model_state.h"

namespace chaski {

// Opens a model. It may call `progress` with a number from 0 to 1, which throws if the server is to
// stop. All fields of the result but `name`, `created`, `generate` and `embed` are set.
using OpenServedModel =
    std::function<ServedModel(const std::function<void(double done)>& progress)>;

struct NamedModel {
  std::string name;
  EngineOptions engine;  // from which its memory is known before it is opened
  DefaultSettings defaults;
  TemplateChoice chat_template;
  OpenServedModel open;
  bool embeds = false;    // it computes embeddings
  bool generates = true;  // false: it is offered for embeddings only
};

struct ModelsOptions {
  uint64_t most_bytes = 0;  // of all open models; 0: no limit
  // Refuse a model that alone needs more than most_bytes. Otherwise it is opened, alone.
  bool refuses_more = true;
  double keep = -1;                             // as ModelWish::keep, for requests without it
  bool any_name = false;                        // an unknown name means the first model
  double most_slowdown = Inbox::kMostSlowdown;  // as in Inbox
};

// What happened to a model. `why`: the reason or the error.
struct ModelEvent {
  enum class Kind { loaded, unloaded, failed };
  Kind kind;
  std::string name, why = {};
  double seconds = 0;  // that it took
  uint64_t bytes = 0;
};

class Models {
 public:
  // Functions that any thread may call.
  struct Hooks {
    // `cache`: what open_cache returned.
    std::function<GenerateResult(Inbox& inbox, DiskCache* cache, std::span<const TokenId> prompt,
                                 const GenerateOptions& options, const Sink& sink)>
        generate;
    std::function<std::unique_ptr<DiskCache>(Inbox& inbox)> open_cache;
    std::function<void(const ModelEvent& event)> on_event;
  };
  // Reads the headers of all files. Throws what open_model() throws, and Error(usage) if a name is
  // there twice.
  Models(std::vector<NamedModel> models, const ModelsOptions& options, Hooks hooks);
  ~Models();  // abandons an open that runs and closes all models. No request may use one.
  Models(const Models&) = delete;

  // Any thread may call these. They throw ApiError (404) for an unknown name.
  //
  // The model, which stays open as long as the pointer lives. While the caller waits, `waits` is
  // called every kLook; it may throw, which ends the wait. An open that has begun goes on. Throws
  // ApiError if the model cannot be opened, to all requests that wait for it.
  std::shared_ptr<const ServedModel> acquire(
      const ModelWish& wish, const std::function<void(const ModelState& model)>& waits);
  static constexpr std::chrono::milliseconds kLook{50};
  // The same, but throws what opening the model threw.
  std::shared_ptr<const ServedModel> get(const ModelWish& wish,
                                         const std::function<void(const ModelState& model)>& waits);
  ModelHeader header(const std::string& name);
  // Closes a model when no request uses it. Returns its name.
  std::string unload(const std::string& name);
  std::vector<ModelState> states() const;  // in the order of the constructor

  struct Figures {
    ModelState state;
    Inbox::Facts facts;  // of the open model
    uint64_t loads = 0, unloads = 0, failures = 0;
  };
  std::vector<Figures> figures() const;
  Inbox::Facts facts() const;  // sums over all models, also those that were closed
  DiskCache::Facts cache_facts() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    ServedModel served;
    std::unique_ptr<Inbox> inbox;
    std::unique_ptr<DiskCache> cache;  // of the inbox; may be null
    uint64_t reserved = 0;             // bytes
  };
  struct Load;
  struct Entry {
    NamedModel model;
    ModelFacts facts;
    int64_t created = 0;
    std::shared_ptr<Load> load = nullptr;  // that waits or runs
    std::unique_ptr<Open> open = nullptr;
    bool leaving = false;  // it gets no new requests
    int users = 0;
    double keep = -1;
    uint64_t used = 0;  // order of last uses
    std::optional<Clock::time_point> expires = {};
    std::string why_unloaded = {};
    std::optional<std::string> last_error = {};
    uint64_t loads = 0, unloads = 0, failures = 0;
  };
  // Requests that wait for one model.
  struct Load {
    Entry* entry;
    int waiters = 0;
    std::optional<uint64_t> need = {};  // bytes; nothing: not known yet
    double progress = 0;
    bool over = false;
    std::exception_ptr error = nullptr;
  };
  class Waiter;

  Entry& first() const;
  Entry& find(const std::string& name) const;
  std::shared_ptr<const ServedModel> use(Entry& entry, std::unique_lock<std::mutex>& lock);
  std::shared_ptr<const ServedModel> pointer_to(Entry& entry, std::unique_lock<std::mutex>& lock);
  void release(Entry& entry);
  void release_locked(Entry& entry);
  ModelState state_of(const Entry& entry) const;
  static uint64_t bytes_of(const Entry& entry);
  static std::optional<Clock::time_point> end_of(double keep);

  void work();
  Entry* to_close();
  void close(Entry& entry, std::unique_lock<std::mutex>& lock);
  bool go_on(std::shared_ptr<Load> load, std::unique_lock<std::mutex>& lock);
  bool make_room(const Load& load);
  void leave_queue();
  void measure(Load& load, std::unique_lock<std::mutex>& lock);
  void open(Load& load, std::unique_lock<std::mutex>& lock);
  std::unique_ptr<Open> opened(Load& load);
  void end(Load& load, std::exception_ptr error, std::unique_lock<std::mutex>& lock);

  const ModelsOptions options_;
  const Hooks hooks_;
  const std::shared_ptr<Turns> turns_ = std::make_shared<Turns>();

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::deque<std::shared_ptr<Load>> queue_;
  uint64_t uses_ = 0;
  Inbox::Facts earlier_;  // of models that were closed
  DiskCache::Facts earlier_cache_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace chaski
