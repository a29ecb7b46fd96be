// How many tokens of prompts a pass reads, so that requests that decode in the same pass do not
// wait long for their next token.
//
// The time of a pass is modelled as that of its decoding tokens alone, plus a cost for each token
// of a prompt. Both are medians of the last kRecent passes: the first by the number of decoding
// tokens, the second by the power of two of the portion, because a token of a small portion costs
// more. The portion is the largest one whose predicted time is within the limit. A pass without
// prompts comes first where the time of the decoding tokens is unknown or old. An old cost is
// forgotten, so that a portion which other load of the machine made small grows again. The model
// changes the time of texts and never their bytes, so it may learn from a clock.
#pragma once
#include <array>
#include <cstddef>

namespace chaski {

class PromptPortion {
 public:
  // A pass that decodes takes at most `most_slowdown` times as long as without prompts. If that is
  // longer than kMostPass, half of the slow-down or kMostPass is the limit, whichever is longer. A
  // portion has at least kLeast tokens. 0: no limit.
  explicit PromptPortion(double most_slowdown) : most_slowdown_(most_slowdown) {}

  // Pages of a cancelled request are free after the pass that runs, within 100 ms.
  static constexpr double kMostPass = 0.08;  // seconds
  // Of passes in which no request decodes. They are abandoned when a request is cancelled.
  static constexpr double kMostReading = 0.25;  // seconds
  static constexpr int kLeast = 4;              // tokens, whatever time they take
  static constexpr int kLeastReading = 64;      // tokens, whatever time they take
  static constexpr int kFirst = 16;             // tokens, before their cost is measured
  static constexpr int kOld = 64;               // passes after which a time is measured again

  // The tokens of prompts, at most `most`, of a pass with `decoding` other tokens. 0: the pass is
  // to be measured without prompts.
  int tokens(int decoding, int most) const;
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
  double seconds_of(int prompt) const;  // of the tokens of prompts; 0: unknown

  double most_slowdown_;
  int passes_ = 0;
  std::array<Recent, kWidths> step_;  // seconds, by decoding tokens
  std::array<Recent, kSizes> cost_;   // seconds a token, by power of two of the portion
};

}  // namespace chaski
