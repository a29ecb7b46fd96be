#include "main/terminal/answer_view.h"

#include <algorithm>

#include "engine/conversation/tools.h"
#include "engine/text/repeated_end.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr size_t kTimes = 4, kLeast = 16;

}  // namespace

AnswerView::AnswerView(const Look& look, bool thinks)
    : look_(look), terminal_(stdout_is_terminal()), thoughts_(thinks) {}

void AnswerView::push(std::string_view text) {
  all_ += text;
  for (const Thoughts::Part& part : thoughts_.push(text)) show(part);
}

void AnswerView::end(bool with_calls) {
  for (const Thoughts::Part& part : thoughts_.flush()) show(part);
  unfold();
  const bool hidden = calls_ && !with_calls;
  if (!hidden) put_part(std::exchange(held_, ""), false);
  if (!line_ends_ && (shown_ || !hidden)) put("\n");
}

// What of the answer so far is sure to stand in front of all calls.
std::string AnswerView::before_call(const std::string& text) {
  held_ += text;
  if (calls_) return "";
  size_t sure = held_.size();
  if (look_.bare_calls && bare_) {
    const std::optional<bool> call = begins_bare_call(held_);
    bare_ = !call, calls_ = call.value_or(false);
    if (bare_ || calls_) return "";
  }
  if (const size_t at = held_.find(look_.call); at != std::string::npos)
    calls_ = true, sure = at;
  else
    sure -= mark_begun(held_, look_.call);
  std::string out = held_.substr(0, sure);
  held_.erase(0, sure);
  return out;
}

void AnswerView::show(const Thoughts::Part& part) {
  if (part.is_thought) thought_ += part.text;
  const bool folds = look_.thoughts == Shown::folded && terminal_ && terminal_obeys();
  if (part.is_thought && (folds || look_.thoughts == Shown::nothing)) {
    swallows_space_ = true;
    if (!folds || thinks_since_) return;
    thinks_since_ = std::chrono::steady_clock::now();
    return put(dimmed("thinking ..."));
  }
  unfold();
  put_part(part.is_thought || look_.call.empty() ? part.text : before_call(part.text),
           part.is_thought);
}

void AnswerView::unfold() {
  if (!thinks_since_) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - *thinks_since_;
  thinks_since_.reset();
  put("\r\033[K" + dimmed(fmt::format("thought for {:.1f} s: /think shows it", took.count())) +
      "\n");
}

void AnswerView::put_part(std::string text, bool is_thought) {
  if (swallows_space_) text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (text.empty()) return;
  swallows_space_ = false;
  shown_ = true, line_ends_ = text.ends_with('\n');
  if (terminal_) text = safe_for_terminal(text);
  if (wrap_.in_line() && !line_is_open()) wrap_.start_line();  // a notice came between
  if (terminal_ && look_.wraps && terminal_obeys()) text = wrap_.push(text, terminal_width());
  put(terminal_ && is_thought ? dimmed(text) : text);
}

bool AnswerView::repeats() {
  constexpr std::string_view kSentenceEnds = ".!?\n\"";
  if (said_ || all_.empty() || kSentenceEnds.find(all_.back()) == std::string_view::npos)
    return false;
  return said_ = repeated_end(all_, kTimes, kLeast) > 0;
}

}  // namespace chaski
