// An answer as somebody at a terminal sees it: words are not broken at the edge, and what the model
// thinks is dim. In a pipe it is the model's text, byte for byte. Thoughts are left out of either
// where they are not wanted, and calls of tools are kept back, since somebody else shows them.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "engine/conversation/thoughts.h"
#include "engine/text/word_wrap.h"

namespace chaski {

class AnswerView {
 public:
  // folded: on a terminal, a line says how long they took; in a pipe they are whole.
  enum class Shown { all, nothing, folded };
  struct Look {
    Shown thoughts = Shown::all;
    bool wraps = true;  // on a terminal
    // What begins a call; empty: there are none. And whether an answer may be one without
    // that.
    std::string_view call = {};
    bool bare_calls = false;
  };
  // `thinks`: the prompt has begun a thought.
  AnswerView(const Look& look, bool thinks);
  // Shows what comes next of the answer. Throws Error(io).
  void push(std::string_view text);
  // What was still held back, calls only if they are to be shown as they are, and the end of the
  // line.
  void end(bool with_calls = true);
  const std::string& thought() const { return thought_; }  // so far, with its marks
  // Once: that the end of the answer is one text four times in a row.
  bool repeats();

 private:
  void show(const Thoughts::Part& part);
  void put_part(std::string text, bool is_thought);
  void unfold();
  std::string before_call(const std::string& text);

  const Look look_;
  const bool terminal_;
  Thoughts thoughts_;
  WordWrap wrap_;
  std::string all_, thought_;  // the answer so far, and what of it is thought
  std::optional<std::chrono::steady_clock::time_point> thinks_since_;  // a line says so
  std::string held_;                                                   // a call, or what may be one
  bool line_ends_ = false, swallows_space_ = false, said_ = false, calls_ = false, bare_ = true,
       shown_ = false;
};

}  // namespace chaski
