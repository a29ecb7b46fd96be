// Shows an answer while it is generated. On a terminal, lines break between words and thinking is
// dim. In a pipe or a file the bytes are the model's. Thinking can be hidden, and tool calls are
// held back until end(), because the caller may show them in another form.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "engine/conversation/answer_stream.h"
#include "engine/text/word_wrap.h"

namespace chaski {

class AnswerView {
 public:
  // folded: on a terminal one line says how long the model thought; elsewhere thinking is shown.
  enum class Thinking { shown, hidden, folded };
  struct Look {
    Thinking thinking = Thinking::shown;
    bool wraps = true;  // on a terminal
  };
  explicit AnswerView(const Look& look);
  // Shows one event. Throws Error(io).
  void take(const AnswerEvent& event);
  // Ends the line, after the spelling of the tool calls if `with_calls`.
  void end(bool with_calls);
  // True once: when the answer ends with the same text four times in a row.
  bool repeats();

 private:
  void take_thinking(std::string_view text);
  void unfold();
  void put_part(std::string_view text, bool thinking);

  const Look look_;
  const bool terminal_;
  WordWrap wrap_;
  std::string all_, calls_;  // the answer so far; the spelling of its calls
  std::optional<std::chrono::steady_clock::time_point> folded_since_;  // the line is on the screen
  bool line_ends_ = false, shown_ = false, skips_space_ = false, repetition_reported_ = false;
};

}  // namespace chaski
