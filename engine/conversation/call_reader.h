// Reads the tool calls of a whole answer. call_scanner.h follows them while they are generated.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/conversation/tools.h"

namespace chaski {

// Whether an answer with this beginning may be a call without marks: JSON, also in a code block.
// Nothing if more text is needed to decide.
std::optional<bool> begins_bare_call(std::string_view answer);

struct ToolAnswer {
  std::string content;  // without the calls and the white space around them
  std::vector<ToolCall> calls;
  // A line for each damaged call, which stays in the content, and for each call of an unknown
  // function, which stays among the calls.
  std::vector<std::string> faults;
  bool damaged = false;  // at least one call is
  bool cut = false;      // the last call is, and reaches the end of the answer without its end mark
};
// `answer` contains its control tokens as text. Calls inside a thought are ignored.
ToolAnswer read_calls(const ToolSyntax& syntax, const Tools& tools, std::string_view answer,
                      const CallIds& ids);

}  // namespace chaski
