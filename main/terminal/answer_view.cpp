#include "main/terminal/answer_view.h"

#include <algorithm>
#include <utility>

#include "engine/text/repeated_end.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr size_t kRepeats = 4, kShortestRepeat = 16;  // bytes

}  // namespace

AnswerView::AnswerView(const Look& look) : look_(look), terminal_(stdout_is_terminal()) {}

void AnswerView::take(const AnswerEvent& event) {
  using Kind = AnswerEvent::Kind;
  if (event.kind == Kind::generated) all_ += event.text;
  if (event.kind == Kind::thinking) take_thinking(event.text);
  if (event.kind == Kind::thinking_end) unfold();
  if (event.kind == Kind::text) put_part(event.text, false);
  if (event.kind == Kind::call_text) calls_ += event.text;
}

void AnswerView::end(bool with_calls) {
  const bool hidden = !calls_.empty() && !with_calls;
  if (!hidden) put_part(std::exchange(calls_, ""), false);
  if (!line_ends_ && (shown_ || !hidden)) put("\n");
}

void AnswerView::take_thinking(std::string_view text) {
  const bool folds = look_.thinking == Thinking::folded && terminal_ && terminal_obeys();
  if (!folds && look_.thinking != Thinking::hidden) return put_part(text, true);
  skips_space_ = true;
  if (!folds || folded_since_) return;
  folded_since_ = std::chrono::steady_clock::now();
  put(dimmed("thinking ..."));
}

void AnswerView::unfold() {
  if (!folded_since_) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - *folded_since_;
  folded_since_.reset();
  put("\r\033[K" + dimmed(fmt::format("thought for {:.1f} s: /think shows it", took.count())) +
      "\n");
}

void AnswerView::put_part(std::string_view part, bool thinking) {
  std::string text(part);
  if (skips_space_) text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (text.empty()) return;
  skips_space_ = false;
  shown_ = true, line_ends_ = text.ends_with('\n');
  if (terminal_) text = safe_for_terminal(text);
  if (wrap_.in_line() && !line_is_open()) wrap_.start_line();  // a message on stderr came between
  if (terminal_ && look_.wraps && terminal_obeys()) text = wrap_.push(text, terminal_width());
  put(terminal_ && thinking ? dimmed(text) : text);
}

bool AnswerView::repeats() {
  constexpr std::string_view kSentenceEnds = ".!?\n\"";
  if (repetition_reported_ || all_.empty() ||
      kSentenceEnds.find(all_.back()) == std::string_view::npos)
    return false;
  return repetition_reported_ = repeated_end(all_, kRepeats, kShortestRepeat) > 0;
}

}  // namespace chaski
