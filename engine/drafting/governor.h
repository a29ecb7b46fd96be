// What tree of tokens to guess before a pass, so that guessing is worth its time: the one with the
// most expected tokens per second, by what passes of so many tokens took, what a guess costs, and
// how often guesses of this kind were right at each place, where other guesses at the next token
// count when those before them were wrong. None where none is worth it, or where the loss, if all
// were wrong, is more than the guesses before have gained and a hundredth of the time. It decides
// speed alone, so it may look at a clock. Requests that run together share one.
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
  static constexpr int kPlainFirst = 5;  // passes without guesses

  // Guesses to ask for: `most` at most, of `first` guesses at the next token. kind:
  // Drafter::kind(). The pass is for `others` besides, with a token each and `taken` more.
  Draft::Shape shape(int kind, int most, int first = 1, int others = 0, int taken = 0);

  // Whether nobody needs to be asked for guesses, or of which kind they were, before this pass:
  // none would have been right for long.
  bool rests() const;

  // Whether anything was seen of guesses of this kind: where watching one costs nothing, it comes
  // first.
  bool knows(int kind) const { return kind >= 0 && right_[size_t(kind)][0][0].n > 0; }

  // What came of guesses of one kind, so many, made in `drafting` seconds. `places`: of each first
  // guess, how far it was looked at: 1 where it was only compared with what was drawn, else as deep
  // as guesses behind it were in the pass; `right`: how many behind each other, of the first guess
  // `which`, were right. `preparing`: the drafter was asked and had to read the text first, which
  // whoever named it has wanted: it counts in speed_up() alone.
  struct Outcome {
    int kind = -1, guesses = 0;
    Draft::Shape places{};
    int which = 0, right = 0;
    double drafting = 0;
    bool preparing = false;
  };
  void learn(const Outcome& outcome);
  // A pass of so many tokens for so many requests, which gave `made` of them.
  void learn_pass(int tokens, int requests, int made, double seconds);

  // How many times more tokens a second than without guesses, since the governor was made: by the
  // usual times of passes, so that what else the machine does has no part in it. 0: unknown.
  double speed_up() const;

 private:
  // Of the last few: one that somebody held up says little of the next. Of two, the smaller.
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
  // How often the guess at a place is right where those before it are: of the first guess at the
  // next token, or of another where the first ones are wrong.
  double right(int kind, int first, int place) const;
  // What was spent, and what it would have been without guesses: seconds.
  std::pair<double, double> spent_and_plain() const;

  std::array<Median, kMost + 2> pass_;  // seconds, by tokens in the pass
  Median guess_, asking_;               // seconds: of a guess, of finding that there is none
  int64_t guesses_ = 0;
  // by kind, first guess, place
  std::array<std::array<std::array<Average, kMost>, Draft::kFirst>, Drafter::kKinds> right_;
  double preparing_ = 0;                   // seconds
  std::array<int64_t, kMost + 2> made_{};  // tokens, by requests of the pass
  int dry_ = 0;                            // draws since a guess was right, or would have been
  int passes_ = 0, plain_at_ = 0, tried_at_ = 0, patience_ = 128;
};

}  // namespace chaski
