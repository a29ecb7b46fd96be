// How many tokens to guess before a pass, so that guessing is worth its time: the length with the
// most expected tokens per second, by what passes of so many tokens took, what a guess costs, and
// how often guesses of this kind were right at each place. 0 where none is worth it. It decides
// speed alone, so it may look at a clock.
#pragma once
#include <array>
#include <vector>

#include "engine/drafter.h"

namespace chaski {

class Governor {
 public:
  static constexpr int kMost = 15;  // guesses; passes of 16 tokens are the widest that pay

  // Guesses to ask for; at most `most`. kind: Drafter::kind().
  int length(int kind, int most);

  // What came of a pass: so many guesses, which took `drafting` seconds to make, and of them
  // `right`, up to the first that was wrong. `passing`: seconds of the pass.
  struct Outcome {
    int kind = -1, guesses = 0, right = 0;
    double drafting = 0, passing = 0;
  };
  void learn(const Outcome& outcome);
  // What a guess would have been, where none was asked for.
  void learn_unasked(int kind, bool right);

  // Whether a guess takes so little time that one may be made only to learn from it.
  bool cheap() const;

  // How many times more tokens a second than without guesses, since the governor was made: by the
  // usual times of passes, so that what else the machine does has no part in it. 0: unknown.
  double speed_up() const;

 private:
  // Of the last few: one that somebody held up says little of the next.
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
  double right(int kind, int place) const;

  std::array<Median, kMost + 2> pass_;  // seconds, by tokens in the pass
  Median guess_;                        // seconds
  std::array<std::array<Average, kMost>, Drafter::kKinds> right_;
  double drafting_ = 0;  // seconds
  int64_t made_ = 0;     // tokens
  int passes_ = 0, plain_at_ = 0, tried_at_ = 0, patience_ = 128;
};

}  // namespace chaski
