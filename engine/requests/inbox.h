// Requests of many threads on one model. One thread, which the inbox starts, makes all passes; any
// thread may add and cancel requests. The text of a request is the one that generate() makes alone.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/requests/loaded_model.h"
#include "engine/requests/scheduler.h"
#include "engine/requests/turns.h"

namespace chaski {

// What an inbox reports of a request. Views are valid during the call only. The last event of a
// request is `finish` or `error`.
struct RequestEvent {
  enum class Kind {
    reading,       // `known` of `all` tokens of the prompt are read
    token,         // `token` was drawn; its text may come later
    text,          // `text`: whole UTF-8 characters
    finish,        // `result`: cancelled requests finish too, as interrupted
    error,         // `error`: the request ended with it
    dropped,       // the context was full: `known` tokens after the first `kept` were dropped, and
                   // the last `all` are read again
    drafter_lost,  // `text`: why; generation continues without a drafter
  };
  Kind kind;
  std::string_view text = {};
  TokenId token = 0;
  const LogProbabilities* log_probabilities = nullptr;  // of the token, if they were asked for
  int known = 0, all = 0, kept = 0;
  const GenerateResult* result = nullptr;
  const Error* error = nullptr;
};

class Inbox {
 public:
  struct Job {
    std::vector<TokenId> prompt;
    RequestSettings settings;
    std::shared_ptr<const Rules> rules = nullptr;  // the text fits them; null: any text
    int priority = 0;                              // as in Scheduler::add()
    // While it is set, the request gets no passes, because its receiver is slow. Call resume()
    // after clearing it.
    std::shared_ptr<const std::atomic<bool>> hold = nullptr;
    // Called by the thread that makes the passes: it must not wait. An Error that it throws ends
    // the request.
    std::function<void(const RequestEvent&)> on_event;
  };
  using Id = uint64_t;
  struct Counts {
    int waiting = 0, running = 0;  // waiting: for the next pass or for pages
    int64_t added = 0, ended = 0;
    int64_t passes = 0, tokens = 0;              // tokens: drawn
    int64_t aside_passes = 0, aside_tokens = 0;  // of read()
    double aside_seconds = 0;
  };
  // A request that is waiting or running.
  struct Sequence {
    Id id = 0;
    int prompt_tokens = 0, known_tokens = 0, cached_tokens = 0;  // as in GenerateResult
    int tokens = 0;                                              // drawn
  };
  // Pages of the KV cache. used: held by sequences; shared: held by several. idle: prefixes that no
  // sequence holds; evicted: idle pages that were reused so far. bytes: memory of the pages that
  // were ever used; a device reserves all pages. With most_idle_bytes of memory in use, idle pages
  // are reused first.
  struct Pages {
    int64_t total = 0, used = 0, shared = 0, idle = 0, evicted = 0;
    uint64_t bytes = 0, idle_bytes = 0, most_idle_bytes = 0;
  };
  struct Facts {
    Counts counts;
    Scheduler::Totals totals;  // sums over all passes; see Scheduler::Totals
    Pages pages;
    std::vector<Sequence> sequences;  // by id; without those that came after the last pass
  };

  // `budget`, `most_slowdown`: as in Scheduler. `turns`: of all inboxes in whose engines passes are
  // made one after the other; null: this one is alone.
  explicit Inbox(std::shared_ptr<LoadedModel> model, int budget = 0,
                 double most_slowdown = kMostSlowdown, std::shared_ptr<Turns> turns = nullptr);
  static constexpr double kMostSlowdown = 2;
  ~Inbox();  // cancels all requests and waits for their last events
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Any thread may call these.
  //
  // Compiles the rules of the job in the calling thread. Throws what LoadedModel::grammar() throws.
  Id add(Job job);
  // Ends a request before its next pass. A pass that reads a prompt is abandoned; any other is one
  // decode step. Does nothing if the request has ended.
  void cancel(Id id);
  void resume();  // a job's `hold` was cleared
  // Calls `work` between two passes, in the thread that makes them, and returns when it has ended.
  // It may make passes of its own sessions. Throws what it throws.
  void run(const std::function<void(Engine& engine)>& work);
  // Calls `work` like run(), once between two passes, until it returns `last`. It reads at most
  // `most` tokens a call in a session of its own: as many as the time between two tokens of the
  // requests allows. Works of several threads take turns; one whose `gone` is set comes first, to
  // end. After a throw it is not called again.
  struct Portion {
    int tokens;  // that were read
    bool last;
  };
  using Reading = std::function<Portion(Engine& engine, int most)>;
  void read(const Reading& work, const std::atomic<bool>& gone);
  // As they were after the last pass. They never wait for a pass.
  Counts counts() const;
  Facts facts() const;
  void wait_until_idle() const;
  const std::shared_ptr<LoadedModel>& model() const { return model_; }

 private:
  struct Entry;
  void work();
  void begin(Entry& entry);
  void end(Entry& entry, const Error* error);
  void end_all(const Error& error);
  void make_pass();
  void read_portion();
  void publish();

  const std::shared_ptr<LoadedModel> model_;
  const int budget_;
  const double most_slowdown_;
  const std::shared_ptr<Turns> turns_;
  std::atomic<bool> abandon_ = false;

  mutable std::mutex mutex_;  // guards what follows, up to the blank line
  mutable std::condition_variable changed_;
  std::vector<std::unique_ptr<Entry>> arrived_;
  std::vector<std::packaged_task<void()>> tasks_;  // of run()
  struct Reader {
    const Reading& work;
    const std::atomic<bool>& gone;
    std::promise<void> over = {};
  };
  std::list<Reader> readers_;  // of read(), the next one in front
  std::map<Id, std::shared_ptr<std::atomic<bool>>>
      cancel_flags_;  // of requests that have not ended
  Counts counts_;
  Facts facts_;  // without the counts
  bool stop_ = false, woken_ = false;

  // Of the thread that makes the passes.
  std::unique_ptr<Scheduler> scheduler_;
  std::map<const Request*, std::unique_ptr<Entry>> entries_;
  Scheduler::Totals earlier_;  // of schedulers that an error of a pass has ended
  int64_t tokens_ = 0;
  std::thread thread_;
};

}  // namespace chaski
