// Requests of many threads on one model. One thread, which the inbox starts, makes all passes; any
// thread may add and cancel requests. The text of a request is the one that generate() makes alone.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/requests/loaded_model.h"
#include "engine/requests/scheduler.h"

namespace chaski {

// What an inbox reports of a request. Views are valid during the call only. The last event of a
// request is `finish` or `error`.
struct RequestEvent {
  enum class Kind {
    reading,  // `known` of `all` tokens of the prompt are read
    token,    // `token` was drawn; its text may come later
    text,     // `text`: whole UTF-8 characters
    finish,   // `result`: cancelled requests finish too, as interrupted
    error,    // `error`: the request ended with it
  };
  Kind kind;
  std::string_view text = {};
  TokenId token = 0;
  const LogProbabilities* log_probabilities = nullptr;  // of the token, if they were asked for
  int known = 0, all = 0;
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
    // Called by the thread that makes the passes: it must not wait. An Error that it throws ends
    // the request.
    std::function<void(const RequestEvent&)> on_event;
  };
  using Id = uint64_t;
  struct Counts {
    int waiting = 0, running = 0;  // waiting: for the next pass or for pages
    int64_t added = 0, ended = 0;
    int64_t passes = 0, tokens = 0;  // tokens: drawn
  };

  // `budget`: as in Scheduler.
  explicit Inbox(std::shared_ptr<LoadedModel> model, int budget = 0);
  ~Inbox();  // cancels all requests and waits for their last events
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Any thread may call these.
  Id add(Job job);
  // Ends a request before its next pass, and in the middle of a pass that is only for requests that
  // were cancelled. Does nothing if the request has ended.
  void cancel(Id id);
  Counts counts() const;  // as they were after the last pass; never waits for a pass
  void wait_until_idle() const;

 private:
  struct Entry;
  void work();
  void begin(Entry& entry);
  void end(Entry& entry, const Error* error);
  void end_all(const Error& error);

  const std::shared_ptr<LoadedModel> model_;
  const int budget_;

  mutable std::mutex mutex_;  // guards what follows, up to the blank line
  mutable std::condition_variable changed_;
  std::vector<std::unique_ptr<Entry>> arrived_;
  std::map<Id, std::shared_ptr<std::atomic<bool>>>
      cancel_flags_;  // of requests that have not ended
  Counts counts_;
  bool stop_ = false;

  // Of the thread that makes the passes.
  std::unique_ptr<Scheduler> scheduler_;
  std::map<const Request*, std::unique_ptr<Entry>> entries_;
  int64_t tokens_ = 0;
  std::thread thread_;
};

}  // namespace chaski
