#include "engine/conversation/answer_stream.h"

#include <utility>

#include "engine/conversation/call_reader.h"

namespace chaski {

void AnswerStream::push(std::string_view text) {
  all_ += text;
  for (const Thoughts::Part& part : thoughts_.push(text)) take(part);
  if (!calls_ || !may_send_calls()) return;
  follow_calls();
  send_complete_calls();
}

// Text may follow that turns the whole beginning into a thought: then its calls are not calls. So a
// call is sent early only at the beginning of the answer or after a thought.
bool AnswerStream::may_send_calls() const {
  if (bare_) return true;
  const size_t first = all_.find(syntax_->begins);
  return all_.find_first_not_of(" \t\r\n") == first || all_.find("</think>") < first;
}

void AnswerStream::follow_calls() {
  for (const CallScanner::Step& step : scanner_->follow(held_)) {
    if (step.call == calls_begun_) {
      const ToolCall call{ids_.of(calls_begun_++), scanner_->calls()[step.call].name, ""};
      on_event_({.kind = AnswerEvent::Kind::call_begun, .call = &call});
    }
    if (!step.arguments.empty()) send(AnswerEvent::Kind::call_part, step.arguments);
  }
}

void AnswerStream::send_complete_calls() {
  if (syntax_->ends.empty()) return;
  const size_t mark = all_.rfind(syntax_->ends);
  if (mark == std::string::npos || mark < calls_end_) return;
  calls_end_ = mark + syntax_->ends.size();
  ToolAnswer read =
      read_calls(*syntax_, tools_, std::string_view(all_).substr(0, calls_end_), ids_);
  send_calls(read.calls);
}

void AnswerStream::send_calls(std::vector<ToolCall>& calls) {
  size_t begun = 0, later = calls_begun_;
  for (ToolCall& call : calls) {
    const auto is_same = [&](const CallScanner::Call& one) {
      return one.name == call.name && same_json(one.arguments, call.arguments);
    };
    while (begun < calls_begun_ && !is_same(scanner_->calls()[begun])) ++begun;
    call.id = ids_.of(begun < calls_begun_ ? begun : later++);
    if (begun < calls_begun_) call.arguments = scanner_->calls()[begun++].arguments;
  }
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
    may_be_bare_ = !call, calls_ = bare_ = call.value_or(false);
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
