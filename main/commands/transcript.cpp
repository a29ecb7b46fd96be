#include "main/commands/transcript.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "main/terminal/output.h"
#include "main/terminal/wrapped.h"

namespace chaski {

std::string without_tabs(std::string_view line) {
  constexpr std::string_view kTab = "    ";
  std::string out;
  for (const char c : line) c == '\t' ? out += kTab : out += c;
  return out;
}

void put_transcript(const ChatMessage& message, size_t most_lines, ShownAs shown) {
  const auto show = shown == ShownAs::note ? put_note : put_state;
  const auto show_whole = shown == ShownAs::note ? put_whole_note : put_whole_state;
  std::string begin = message.role == "user"     ? "> "
                      : message.role == "system" ? "system: "
                      : message.role == "tool"   ? message.name + " returns> "
                                                 : "";
  const std::string& text = message.content;
  const bool empty = begin.empty() && text.empty() && !message.calls.empty();
  size_t lines = 0;
  bool code = false;  // between lines that begin with ```
  for (size_t at = 0, end; at <= text.size() && !empty; at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    const std::string line = without_tabs(std::string_view(text).substr(at, end - at));
    const bool fence =
        line.compare(std::min(line.find_first_not_of(' '), line.size()), 3, "```") == 0;
    if (lines++ < most_lines) (code || fence ? show_whole : show)(std::exchange(begin, "") + line);
    code ^= fence;
  }
  if (lines > most_lines) show(fmt::format("... {} more", counted(lines - most_lines, "line")));
  for (const ToolCall& call : message.calls)
    show(fmt::format("call {} {}", call.name, call.arguments));
  if (message.role == "assistant") show("");
}

}  // namespace chaski
