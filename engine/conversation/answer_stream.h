// Splits an answer into thinking, text and tool calls while it is generated.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "engine/conversation/thoughts.h"
#include "engine/conversation/tools.h"

namespace chaski {

struct GenerateResult;

// What happens while an answer is made, in this order. Views are valid during the call only.
struct AnswerEvent {
  enum class Kind {
    rewritten,     // once: the chat template changes the answer to question `count` (from 1)
    dropped,       // `count` messages were dropped because the context is full
    prompt,        // the prompt has `count` tokens; generation begins
    thinking,      // `text` of a thought, with its marks
    thinking_end,  // sent once, if there was any thinking
    text,          // `text` for the reader
    generated,     // `text` as generated: what the events before it were parsed from
    call_text,     // `text` of the tool calls as the model spelled them
    tool_call,     // `call`, complete
    finish,        // `result`, complete
  };
  Kind kind;
  std::string_view text = {};
  size_t count = 0;
  const ToolCall* call = nullptr;
  const GenerateResult* result = nullptr;
};
using OnAnswerEvent = std::function<void(const AnswerEvent&)>;

class AnswerStream {
 public:
  // `thinks`: the prompt ends inside a thought. `syntax`: how calls are spelled; null: all is text.
  AnswerStream(bool thinks, const ToolSyntax* syntax, const OnAnswerEvent& on_event)
      : thoughts_(thinks), syntax_(syntax), on_event_(on_event) {}
  // Takes the next piece of the answer. Text that may begin a mark waits for the next piece.
  void push(std::string_view text);
  // Sends what still waits: text, or the spelling of the tool calls.
  void end();
  const std::string& thought() const { return thought_; }  // so far, with its marks

 private:
  void take(const Thoughts::Part& part);
  std::string before_call(const std::string& text);
  void end_thinking();
  void send(AnswerEvent::Kind kind, std::string_view text) { on_event_({kind, text}); }

  Thoughts thoughts_;
  const ToolSyntax* syntax_;
  const OnAnswerEvent& on_event_;
  std::string thought_, held_;  // held_: a tool call, or text that may begin one
  bool thinking_ = false, calls_ = false;
  bool may_be_bare_ = true;  // the whole answer may be one call without marks
};

}  // namespace chaski
