// Runs many requests in one engine (iteration-level scheduling: Orca, Yu et al. 2022). Requests
// join and leave between passes. Prompts are read in portions (prompt_portion.h), in the same
// passes in which other requests decode. The other requests change the time of a text and never its
// bytes. Not thread-safe: one thread adds requests and runs passes.
#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "engine/requests/prompt_portion.h"
#include "engine/requests/request.h"

namespace chaski {

class Scheduler {
 public:
  // `budget`: most tokens of a pass, without draft tokens, while a request decodes; 0: as many as a
  // pass can have. `most_slowdown`: as in PromptPortion. `abandon`: a pass that reads a
  // prompt is abandoned when it is set, and its tokens are read again; the pass after it is not.
  // Without `abandon`, a pass is abandoned when all its requests are interrupted.
  explicit Scheduler(std::shared_ptr<Engine> engine, int budget = 0, double most_slowdown = 0,
                     const std::atomic<bool>* abandon = nullptr);

  // A request that is one priority higher goes first if it came less than this many passes later.
  static constexpr int64_t kAgeing = 64;

  // Adds a request to the queue. Its turn is the number of the pass, minus kAgeing for each step of
  // priority, so no request waits forever. The turn decides which request starts first, whose
  // prompt is read first, and which one keeps its pages. A request starts when there are pages for
  // its prompt. If a running request has the same prefix, the prefix is read once. The request must
  // live until it has ended. Throws Error(memory), with Error::need and Error::have, if the prompt
  // needs more pages than the engine has.
  void add(Request& request, int priority = 0);

  // Runs one pass for all running requests. False when no request is left. These end one request
  // and leave the others alone (see Request::error): an interrupt, logits that are not finite, an
  // Error of its sink or drafter, and too little memory for this request alone. When pages run out,
  // the running request with the last turn is preempted and later reads its text again; held
  // requests (RequestWiring::hold) come first. Throws other Errors of a pass.
  bool step();

  // The requests that ended in the last step; after a step that threw, some may be missing.
  std::span<Request* const> ended() const { return ended_; }

  int running() const { return int(running_.size()); }
  int waiting() const { return int(waiting_.size()); }
  // Whether the last step made no pass because all requests are held.
  bool stalled() const { return stalled_; }
  // Of the next steps: as in PromptPortion::next().
  void set_shared(bool shared) { shared_ = shared; }

  // How many tokens of another text may be read before the next step, in a session of its own. Tell
  // learn_aside() how long they took.
  int portion_aside() const;
  void learn_aside(int tokens, double seconds);

  struct Totals {
    int64_t passes = 0;
    int64_t prompt_tokens = 0;          // read, also again after a preemption
    int64_t prefix_tokens = 0;          // of prompts, not read because their pages were there
    int64_t drafted = 0, accepted = 0;  // draft tokens
    int64_t preempted = 0;              // requests
    int64_t widths = 0;                 // requests of all passes
    int width = 0, tokens = 0;          // requests and tokens of the last pass
    double seconds = 0;                 // that it took
    // Sums; the last pass is that of `later`.
    Totals operator+(const Totals& later) const;
  };
  const Totals& totals() const { return totals_; }

 private:
  struct Turn {
    int64_t pass, number;  // the pass minus the value of the priority; the number of the request
    auto operator<=>(const Turn&) const = default;
  };
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Turn turn;
    Request* request;
    Clock::time_point added;
  };
  // none: held. reads: more tokens than those of a decode step.
  enum class Part { none, decodes, reads };
  struct Running {
    Turn turn;
    Request* request;
    Clock::time_point added;
    std::unique_ptr<Session> session;
    bool counted = false;    // its prefix is in the totals
    Part part = Part::none;  // in the last pass
  };

  void admit();
  // A session for the request; null while the request has to wait.
  std::unique_ptr<Session> session_for(const Request& request);
  std::vector<int64_t> pages_for(size_t tokens) const;
  std::vector<Extension> extensions();
  PromptPortion::Choice choose(int decoding, int reading, int most) const;
  static Part part_of(const Running& running);
  void preempt(const Error& error);
  bool preempt_held();
  void count(const std::vector<Extension>& pass, double seconds);
  static void learn(const std::vector<Running*>& running, const std::vector<Extension>& pass,
                    const std::vector<Draws>& draws, double seconds);
  void remove_ended();

  std::shared_ptr<Engine> engine_;
  const int budget_;
  PromptPortion portion_;
  const std::atomic<bool>* const abandon_;
  Totals totals_;
  int64_t added_ = 0;
  bool stalled_ = false, abandoned_ = false;  // abandoned_: the last pass was
  std::deque<Waiting> waiting_;               // by turn
  std::vector<Running> running_;              // by turn
  std::vector<Running*> in_pass_;             // by extension
  std::vector<Draws> draws_;                  // of the last pass
  std::vector<Request*> ended_;               // in the last step
  bool shared_ = false;                       // other engines make passes too
  bool full_ = false;            // a request was preempted: none starts until another one ends
  bool prefix_is_read_ = false;  // the first waiting request waits until its prefix is read
};

}  // namespace chaski
