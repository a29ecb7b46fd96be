#include "engine/conversation/answer_stream.h"

#include <utility>

namespace chaski {

void AnswerStream::push(std::string_view text) {
  all_ += text;
  for (const Thoughts::Part& part : thoughts_.push(text)) take(part);
  if (calls_) send_complete_calls();
}

// Text may follow that turns the whole beginning into a thought: then its calls are not calls. So a
// call is sent early only at the beginning of the answer or after a thought.
void AnswerStream::send_complete_calls() {
  if (syntax_->ends.empty()) return;
  const size_t mark = all_.rfind(syntax_->ends);
  if (mark == std::string::npos || mark < calls_end_) return;
  const size_t first = all_.find(syntax_->begins);
  if (all_.find_first_not_of(" \t\r\n") != first && all_.find("</think>") > first) return;
  calls_end_ = mark + syntax_->ends.size();
  send_calls(
      read_answer(*syntax_, tools_, std::string_view(all_).substr(0, calls_end_), calls_before_)
          .calls);
}

void AnswerStream::send_calls(const std::vector<ToolCall>& calls) {
  for (; calls_sent_ < calls.size(); ++calls_sent_)
    on_event_({.kind = AnswerEvent::Kind::tool_call, .call = &calls[calls_sent_]});
}

void AnswerStream::end() {
  for (const Thoughts::Part& part : thoughts_.flush()) take(part);
  end_thinking();
  if (held_.empty()) return;
  send(calls_ ? AnswerEvent::Kind::call_text : AnswerEvent::Kind::text, held_);
  held_.clear();
}

void AnswerStream::take(const Thoughts::Part& part) {
  if (part.is_thought) {
    thinking_ = true;
    thought_ += part.text;
    return send(AnswerEvent::Kind::thinking, part.text);
  }
  end_thinking();
  const std::string text = syntax_ ? before_call(part.text) : part.text;
  if (!text.empty()) send(AnswerEvent::Kind::text, text);
}

void AnswerStream::end_thinking() {
  if (std::exchange(thinking_, false)) send(AnswerEvent::Kind::thinking_end, "");
}

// Returns the text that certainly comes before the first call; the rest is held.
std::string AnswerStream::before_call(const std::string& text) {
  held_ += text;
  if (calls_) return "";
  size_t certain = held_.size();
  if (syntax_->bare && may_be_bare_) {
    const std::optional<bool> call = begins_bare_call(held_);
    may_be_bare_ = !call, calls_ = call.value_or(false);
    if (may_be_bare_ || calls_) return "";
  }
  if (const size_t at = held_.find(syntax_->begins); at != std::string::npos)
    calls_ = true, certain = at;
  else
    certain -= mark_begun(held_, syntax_->begins);
  std::string out = held_.substr(0, certain);
  held_.erase(0, certain);
  return out;
}

}  // namespace chaski
