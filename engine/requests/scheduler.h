// Many requests over one engine, a pass at a time (iteration-level scheduling: Orca, Yu et al.
// 2022). They join and leave between passes; a prompt is read in portions beside the others'
// tokens. What a request says does not depend on its company, bit for bit; only the time does.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "engine/requests/request.h"

namespace chaski {

class Scheduler {
 public:
  // `budget`: tokens of a pass at most, besides guesses, while somebody waits for the next word;
  // 0: as many as a pass may have.
  explicit Scheduler(std::shared_ptr<Engine> engine, int budget = 0);

  // How many passes later somebody whose priority is higher by one may come and still go first.
  static constexpr int64_t kAgeing = 64;

  // The request takes its turn behind those who came before; with a higher priority also ahead of
  // those who came less than kAgeing passes before it for each step of priority, so that nobody
  // waits for ever. Turns say who starts first, whose prompt is read first, and who keeps his
  // pages. It starts as soon as it is its turn and there are pages for its prompt. Where its prompt
  // begins as that of one who runs, that beginning is read once. It has to outlive its end. Throws
  // Error(memory) with both numbers if there will never be pages enough.
  void add(Request& request, int priority = 0);

  // One pass, for all who run. False when nobody is left. A request that is interrupted, whose
  // logits are not finite, whose sink or drafter throws an Error (but see
  // GenerateOptions::on_drafter_lost), or for whom alone memory is too small, ends by itself: see
  // Request::error. When pages run out, who has the last turn gives his back, and later reads his
  // text again. Throws other Errors of a pass.
  bool step();

  int running() const { return int(running_.size()); }
  int waiting() const { return int(waiting_.size()); }

 private:
  struct Turn {
    int64_t pass, number;  // of the pass it came before, less what its priority is worth; its own
    auto operator<=>(const Turn&) const = default;
  };
  struct Waiting {
    Turn turn;
    Request* request;
  };
  struct Running {
    Turn turn;
    Request* request;
    std::unique_ptr<Session> session;
  };

  void admit();
  // A session for the request, or none as long as it has to wait.
  std::unique_ptr<Session> session_for(const Request& request);
  std::vector<int64_t> pages_for(size_t tokens) const;
  std::vector<Extension> extensions();
  void preempt(const Error& error);
  static void learn(const std::vector<Running*>& who, const std::vector<Extension>& pass,
                    const std::vector<Draws>& draws, double seconds);
  void leave();

  std::shared_ptr<Engine> engine_;
  const int budget_;
  int64_t passes_ = 0, added_ = 0;
  std::deque<Waiting> waiting_;    // by turn
  std::vector<Running> running_;   // by turn
  std::vector<Running*> in_pass_;  // by extension
  std::vector<Draws> draws_;       // of the last pass
  bool full_ = false;              // who was sent away waits until somebody leaves
};

}  // namespace chaski
