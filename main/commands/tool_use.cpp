#include "main/commands/tool_use.h"

#include <algorithm>

#include "engine/session/engine.h"
#include "engine/shelf/inspection.h"  // for expected_names()
#include "main/terminal/output.h"

namespace chaski {

void ToolFlags::declare(Flags& flags) {
  flags
      .add(
          "--tools", file_,
          "functions that the model may call, in OpenAI's format: a JSON file, or the JSON itself. "
          "With -p the calls are printed as JSON; in a conversation you type what they return")
      .not_empty("a file")
      .type("FILE");
  choice_flag_ = flags
                     .add("--tool-choice", choice_,
                          "auto: the model decides; none: no tools; required: every question is "
                          "answered by one call that fits the schema of its parameters; NAME: by a "
                          "call of this function; what follows its result is free (default auto)")
                     .not_empty("auto, none, required or the name of a function")
                     .type("WHAT");
}

void ToolFlags::read() {
  if (choice_flag_.typed() && file_.empty()) fail(Exit::usage, "--tool-choice needs --tools FILE");
  if (file_.empty()) return;
  const size_t first = file_.find_first_not_of(" \t\r\n");
  const bool is_text = first != std::string::npos && (file_[first] == '[' || file_[first] == '{');
  options_.tools = Tools::parse(is_text ? "--tools" : file_, is_text ? file_ : read_text(file_));
  options_.choice = choice_;
  if (choice_ == "none") options_ = {};
  const auto& names = options_.tools.names();
  if (choice_ != "auto" && choice_ != "none" && choice_ != "required" &&
      std::find(names.begin(), names.end(), choice_) == names.end())
    fail(Exit::usage, "--tool-choice is {}, expected auto, none, required, {}", choice_,
         expected_names(choice_, names));
}

JsonValue calls_json(const std::vector<ToolCall>& calls) {
  JsonValue list = JsonValue::array();
  for (const ToolCall& call : calls)
    list.push_back({{"id", call.id},
                    {"type", "function"},
                    {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return list;
}

}  // namespace chaski
