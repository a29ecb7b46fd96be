// --tools and --tool-choice of chat, and the JSON form of tool calls.
#pragma once
#include <string>
#include <vector>

#include "engine/conversation/tool_calling.h"
#include "main/flags/flags.h"
#include "main/terminal/json_output.h"

namespace chaski {

class ToolFlags {
 public:
  void declare(Flags& flags);
  // Reads the file of --tools. Throws Error(usage | io | bad_file).
  void read();
  bool given() const { return !file_.empty(); }
  // After read(). With --tool-choice none there are no tools.
  const ToolOptions& options() const { return options_; }

 private:
  std::string file_, choice_ = "auto";
  Flag choice_flag_;
  ToolOptions options_;
};

// The calls as OpenAI's interface writes them.
JsonValue calls_json(const std::vector<ToolCall>& calls);

}  // namespace chaski
