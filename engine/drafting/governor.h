// Decides how many draft tokens to ask for before a pass, and in which tree. It chooses the tree
// with the most expected tokens per second. It knows how long passes of each width take, how long a
// draft token takes, and the acceptance rate at each node for each kind of draft. There is no draft
// if none would pay, or if its complete rejection would lose more than earlier drafts gained plus a
// hundredth of the time. A draft model may lose a fiftieth of the time with the prompt, because it
// costs too much to begin with less. The governor affects only speed, so it may read a clock. The
// answers of one command share one; in the server each request has its own. Only the thread that
// makes the passes uses it.
#pragma once
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/drafting/drafter.h"

namespace chaski {

class Governor {
 public:
  static constexpr int kMost = Draft::kMost;
  static constexpr int kPlainFirst = 5;  // the first passes have no draft

  // The draft to ask for: at most `most` nodes, with at most `first` alternatives for the next
  // token. `kind` is Drafter::kind(). The pass also serves `others` requests, which have one token
  // each and `taken` draft tokens in total.
  // `model`: Drafter::model().
  Draft::Shape shape(int kind, int most, int first = 1, int others = 0, int taken = 0,
                     Drafter::Model model = {});

  // Whether the drafter need not be called before this pass, not even for the kind of its draft: no
  // draft token was accepted for long.
  bool rests() const;

  // Whether a draft of this kind was measured. If drafting costs nothing, measuring comes first.
  bool knows(int kind) const { return kind >= 0 && right_[size_t(kind)][0][0].n > 0; }

  // The result of one draft.
  struct Outcome {
    int kind = -1, guesses = 0;  // guesses: draft tokens
    // For each alternative how many of its tokens were checked: 1 if it was only compared with the
    // drawn token, otherwise its depth in the pass.
    Draft::Shape places{};
    int which = 0, right = 0;  // `right` tokens of alternative `which` were accepted
    double drafting = 0;       // seconds
    bool read_first = false;   // Drafter::Model::reads_first
  };
  void learn(const Outcome& outcome);
  // The time in which a prompt was read: with it, a draft model may lose more.
  void learn_prompt(double seconds) { prompt_ += seconds; }
  // A pass with `tokens` tokens for `requests` requests, which got `made` tokens from it.
  void learn_pass(int tokens, int requests, int made, double seconds);

  // Tokens per second, divided by those without drafts, since the governor was made. It is computed
  // from the median times of passes, so other load of the machine has no part in it. 0: unknown.
  double speed_up() const;

 private:
  // The median of the last 15 values, because a delayed pass says little about the next one. Of one
  // or two values, the smaller one.
  struct Median {
    std::array<double, 15> last{};
    int n = 0;
    double value = 0;
    void add(double x);
  };
  struct Average {
    double mean = 0;
    int n = 0;
    void add(double x);
  };
  double pass_seconds(int tokens) const;
  // The acceptance rate of a node if the nodes before it are accepted. `first` is the number of its
  // alternative; it counts if the alternatives before are rejected.
  double right(int kind, int first, int place, bool model) const;
  // Seconds spent, and seconds that the same tokens would have taken without drafts.
  std::pair<double, double> spent_and_plain() const;

  std::array<Median, kMost + 2> pass_;  // seconds, by tokens in the pass
  // Seconds for a draft token; for a call without a draft; for a draft that reads first.
  Median guess_, asking_, reading_;
  int64_t guesses_ = 0;
  // by kind, alternative, depth
  std::array<std::array<std::array<Average, kMost>, Draft::kFirst>, Drafter::kKinds> right_;
  double read_ = 0, prompt_ = 0;           // seconds: of the drafts that read first, of prompts
  std::array<int64_t, kMost + 2> made_{};  // tokens, by the requests of the pass
  int dry_ = 0;  // draws since a draft token was accepted, or would have been
  int passes_ = 0, plain_at_ = 0, tried_at_ = 0, patience_ = 8;
};

}  // namespace chaski
