// How many tokens of prompts a pass reads, so that requests that decode wait a bounded time for
// their next token.
//
// The time of a pass is modelled as that of its decoding tokens alone, plus a cost for each token
// of a prompt. Both are medians of the last kRecent passes: the first by the number of decoding
// tokens, the second by the power of two of the portion, because a token of a small portion costs
// more. The portion is the largest one whose predicted time is within the limit. A pass without
// prompts comes first where the time of the decoding tokens is unknown or old. An old cost is
// forgotten, so that a portion which other load of the machine made small grows again. The model
// changes the time of texts and never their bytes, so it may learn from a clock.
//
// While w requests wait for their first token, the time from one decode step to the next may be
// `most_slowdown` * 2^(w - 1) steps, within kMostBetween and kMostSteps: the last of a group of
// requests waits for all prompts before its own. A request that has already waited k times the time
// in which its prompt is read between decode steps counts k more. A long prompt that is read alone
// never counts more than once. Passes of prompts alone fill that time up to `most_slowdown` steps,
// which the pass with the step takes. Where no such pass fits, the pass with the step takes all of
// it. Every pass that reads a prompt is abandoned when a request is cancelled, so its pages are
// free within 100 ms.
#pragma once
#include <array>
#include <cstddef>

namespace chaski {

class PromptPortion {
 public:
  // While one request reads, the time between two decode steps is at most `most_slowdown` steps. A
  // portion has at least kLeast tokens. 0: no limit.
  explicit PromptPortion(double most_slowdown) : most_slowdown_(most_slowdown) {}

  // Of a pass, if other engines wait for its end. A pass with a decode step may take half of the
  // slow-down.
  static constexpr double kMostPass = 0.08;  // seconds
  // Of passes in which no request decodes.
  static constexpr double kMostReading = 0.25;  // seconds
  // Between decode steps, however many requests wait for their first token: the larger of the two.
  static constexpr double kMostBetween = 1.0;  // seconds
  static constexpr double kMostSteps = 8;
  static constexpr int kLeast = 4;          // tokens, whatever time they take
  static constexpr int kLeastReading = 64;  // tokens, whatever time they take
  static constexpr int kFirst = 16;         // tokens, before their cost is measured
  static constexpr int kOld = 64;           // passes after which a time is measured again

  struct Choice {
    int prompt;    // tokens of prompts; 0: the step is to be measured without prompts
    bool decodes;  // false: the pass leaves out the decoding tokens
  };
  // The next pass, with at most `most` tokens of prompts. `decoding` tokens belong to requests that
  // decode. `reading`, at least 1, is the number of requests that wait for their first token plus
  // how_late() of the latest. `shared` means that another engine waits. The pass then takes at most
  // kMostPass, also if no token decodes.
  Choice next(int decoding, int reading, int most, bool shared = false) const;
  // How many times as long a request has waited as its prompt of `tokens` tokens takes while it is
  // the only one that waits. 0 while the costs are unknown.
  int how_late(int decoding, int tokens, double waited) const;
  // A pass with these tokens took `seconds`.
  void learn(int decoding, int prompt, double seconds);
  // Seconds of a pass of `decoding` tokens without prompts; 0: unknown.
  double step_seconds(int decoding) const;

 private:
  static constexpr size_t kRecent = 15, kWidths = 128, kSizes = 16;
  class Recent {
   public:
    void add(double x);
    double value() const { return value_; }
    bool known() const { return n_ > 0; }
    int pass = 0;  // the number of the last one

   private:
    std::array<double, kRecent> last_{};
    size_t n_ = 0;
    double value_ = 0;
  };
  bool is_new(const Recent& recent) const {
    return recent.known() && passes_ - recent.pass <= kOld;
  }
  using Costs = std::array<Recent, kSizes>;  // seconds a token, by power of two of the portion
  double seconds_of(const Costs& costs, int prompt) const;  // 0: unknown
  int largest(const Costs& costs, double seconds, int least, int most) const;

  double most_slowdown_;
  int passes_ = 0;
  double alone_ = 0;  // seconds since the last decode step, in passes that read only prompts
  std::array<Recent, kWidths> step_;  // seconds, by decoding tokens
  Costs shared_costs_, alone_costs_;  // in passes with and without a decode step
};

}  // namespace chaski
