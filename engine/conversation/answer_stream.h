// Splits an answer into thinking, text and tool calls while it is generated.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/conversation/call_scanner.h"
#include "engine/conversation/thoughts.h"
#include "engine/conversation/tools.h"
#include "engine/sampling/sampler.h"

namespace chaski {

struct GenerateResult;

// What happens while an answer is made, in this order. Views are valid during the call only.
struct AnswerEvent {
  enum class Kind {
    rewritten,     // once: the chat template changes the answer to question `count` (from 1)
    dropped,       // `count` messages were dropped because the context is full
    prompt,        // the prompt has `count` tokens; generation begins
    token,         // `token` was drawn; the events of its text may come later
    thinking,      // `text` of a thought, with its marks
    thinking_end,  // sent once, if there was any thinking
    text,          // `text` for the reader
    generated,     // `text` as generated: what the events before it were parsed from
    call_begun,    // `call` with its id and name: its arguments begin
    call_part,     // `text` is more of the arguments of the call that has begun last
    tool_call,     // `call`: sent when its end mark is generated, or after the whole answer
    call_text,     // `text` of the tool calls as the model spelled them
    finish,        // `result`, complete
  };
  Kind kind;
  std::string_view text = {};
  size_t count = 0;
  TokenId token = 0;
  const LogProbabilities* log_probabilities = nullptr;  // of the token, if they were asked for
  const ToolCall* call = nullptr;
  const GenerateResult* result = nullptr;
};
using OnAnswerEvent = std::function<void(const AnswerEvent&)>;

class AnswerStream {
 public:
  // `thinks`: the prompt ends inside a thought. `syntax`: how calls are spelled; null: all is text.
  // The other arguments must outlive this.
  AnswerStream(bool thinks, const ToolSyntax* syntax, const Tools& tools, const CallIds& ids,
               const OnAnswerEvent& on_event)
      : thoughts_(thinks), syntax_(syntax), tools_(tools), ids_(ids), on_event_(on_event) {
    if (syntax_) scanner_.emplace(*syntax_, tools_);
  }
  // Takes the next piece of the answer. Text that may begin a mark waits for the next piece.
  void push(std::string_view text);
  // Sends what still waits: text, or the spelling of the tool calls.
  void end();
  // Sends the calls that were not sent yet. Those that had begun get the id and the spelling of
  // their arguments that were sent then. One that has begun may be missing: it is damaged.
  void send_calls(std::vector<ToolCall>& calls);
  const std::string& thought() const { return thought_; }  // so far, with its marks

 private:
  void take(const Thoughts::Part& part);
  std::string before_call(const std::string& text);
  bool may_send_calls() const;
  void follow_calls();
  void send_complete_calls();
  void end_thinking();
  void send(AnswerEvent::Kind kind, std::string_view text) { on_event_({kind, text}); }

  Thoughts thoughts_;
  const ToolSyntax* syntax_;
  const Tools& tools_;
  const CallIds& ids_;
  const OnAnswerEvent& on_event_;
  std::string all_, thought_;
  std::string held_;                       // a tool call, or text that may begin one
  size_t calls_end_ = 0, calls_sent_ = 0;  // calls_end_: in all_, after the last end mark
  std::optional<CallScanner> scanner_;     // of held_
  size_t calls_begun_ = 0;
  bool thinking_ = false, calls_ = false;
  bool may_be_bare_ = true;  // the whole answer may be one call without marks
  bool bare_ = false;        // it is one
};

}  // namespace chaski
