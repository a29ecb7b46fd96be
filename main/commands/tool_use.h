// --tools of chat: the functions that a model may call, how its answers spell a call, and what
// forces one.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/conversation/chat_template.h"
#include "engine/grammar/grammar.h"
#include "main/flags/flags.h"
#include "main/terminal/json_output.h"

namespace chaski {

class ToolUse {
 public:
  void declare(Flags& flags);
  // Reads the file. Throws Error(usage | io | bad_file).
  void read();
  // When the model is open. Throws Error(usage) where its template shows no tools, or where a call
  // cannot be forced.
  void begin(const ChatTemplate& format, const Engine& engine);

  bool given() const { return !tools_.empty(); }
  const Tools& tools() const { return tools_; }
  // How an answer spells calls; null: it has none, or they stay text.
  const ToolSyntax* syntax() const { return syntax_; }
  // Control tokens that are a part of that.
  const std::vector<TokenId>& spelled() const { return spelled_; }
  // What a call is that is forced, between opens and closes of the syntax; null: none is.
  Grammar* forced() const { return forced_.get(); }

 private:
  std::string file_, choice_ = "auto";
  Flag choice_flag_;
  Tools tools_;
  const ToolSyntax* syntax_ = nullptr;
  std::vector<TokenId> spelled_;
  std::unique_ptr<Grammar> forced_;
};

// As OpenAI's interface has them.
JsonValue calls_json(const std::vector<ToolCall>& calls);

}  // namespace chaski
