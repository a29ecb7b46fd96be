// The tools of a conversation: how its model spells calls, and the rules that force one. Nothing
// changes once it is made, so any number of threads may use it.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/conversation/chat_template.h"
#include "engine/grammar/rules.h"

namespace chaski {

// OpenAI's `tools` and `tool_choice`.
struct ToolOptions {
  Tools tools;
  std::string choice = "auto";  // "auto", "required", or the name of a function
  // If the chat template does not show tools, describe them in the system message.
  bool may_describe = false;
};

class ToolCalling {
 public:
  ToolCalling() = default;  // no tools
  // `template_text` is the Jinja text of the format, `model` its name for messages. Throws
  // Error(usage) if the chat template does not show tools, or if a call is required and cannot be
  // forced. With options.may_describe the template need not show tools.
  ToolCalling(const ToolOptions& options, const ChatTemplate& format,
              std::string_view template_text, const Tokenizer& tokenizer, const std::string& model);

  // How calls are spelled; null: no tools, or calls stay text.
  const ToolSyntax* syntax() const { return syntax_; }
  // Control tokens that are part of that spelling.
  const std::vector<TokenId>& spelled() const { return spelled_; }
  // The rules of a forced call, between syntax()->opens and syntax()->closes; null: not forced.
  const std::shared_ptr<const Rules>& forced() const { return forced_; }
  // The same messages, as a template without tools can show them: the tools are described in the
  // system message, and calls and results are text. Else the messages as they are. `sources`, if
  // not null, receives the index of the first message that each comes from; the description in
  // front has 0.
  std::vector<ChatMessage> shown(std::span<const ChatMessage> messages,
                                 std::vector<size_t>* sources = nullptr) const;
  // A line for the user if calls stay text, else empty.
  const std::string& notice() const { return notice_; }

 private:
  const ToolSyntax* syntax_ = nullptr;
  std::vector<TokenId> spelled_;
  std::shared_ptr<const Rules> forced_;
  std::string notice_;
  std::string description_;  // empty: the template shows the tools
};

}  // namespace chaski
