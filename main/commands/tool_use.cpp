#include "main/commands/tool_use.h"

#include <algorithm>

#include "engine/conversation/own_template.h"
#include "engine/grammar/json_schema.h"
#include "engine/session/engine.h"
#include "engine/shelf/inspection.h"  // for expected_names()
#include "main/terminal/output.h"

namespace chaski {

void ToolUse::declare(Flags& flags) {
  flags
      .add("--tools", file_,
           "functions that the model may call, as OpenAI's interface lists them: a "
           "JSON file, or its text. -p prints calls as JSON; in a conversation you "
           "type what they give")
      .not_empty("a file")
      .type("FILE");
  choice_flag_ = flags
                     .add("--tool-choice", choice_,
                          "auto: the model chooses; none; required: each question is answered by a "
                          "call, written by the schema of its parameters; NAME: by a call of this "
                          "function (default auto)")
                     .not_empty("auto, none, required or the name of a function")
                     .type("WHAT");
}

void ToolUse::read() {
  if (choice_flag_.typed() && file_.empty())
    fail(Exit::usage, "--tool-choice chooses among --tools, expected --tools FILE");
  if (file_.empty()) return;
  const size_t first = file_.find_first_not_of(" \t\r\n");
  const bool is_text = first != std::string::npos && file_[first] == '[';
  tools_ = Tools::parse(is_text ? "--tools" : file_, is_text ? file_ : read_text(file_));
  if (choice_ == "none") tools_ = {};
  const auto& names = tools_.names();
  if (choice_ != "auto" && choice_ != "none" && choice_ != "required" &&
      std::find(names.begin(), names.end(), choice_) == names.end())
    fail(Exit::usage, "--tool-choice is {}, expected auto, none, required, {}", choice_,
         expected_names(choice_, names));
}

void ToolUse::begin(const ChatTemplate& format, const Engine& engine) {
  if (!given()) return;
  if (!format.own() || !format.own()->takes_tools())
    fail(Exit::usage, "{}: its chat template shows no tools, expected a model made for them",
         engine.path());
  syntax_ = tool_syntax(engine.meta().str("tokenizer.chat_template", ""));
  const bool forces = choice_ != "auto";
  if (forces && (!syntax_ || !syntax_->can_be_forced))
    fail(Exit::usage,
         "{}: how its chat template has calls written is not known well enough to force one, "
         "expected --tool-choice auto",
         engine.path());
  if (!syntax_)
    put_notice(
        fmt::format("{}: how its chat template has calls written is not known, so they stay text",
                    engine.path()));
  if (!syntax_) return;
  const Tokenizer& tokenizer = engine.tokenizer();
  for (const std::string_view mark : {syntax_->begins, syntax_->ends, std::string_view("[ARGS]")})
    if (const auto token = tokenizer.find(mark); token && tokenizer.is_control(*token))
      spelled_.push_back(*token);
  if (!forces) return;
  const std::string schema =
      tools_.schema_of_call(choice_ == "required" ? "" : choice_, syntax_->arguments);
  forced_ =
      std::make_unique<Grammar>(parse_json_schema({"--tools", schema, Exit::bad_file}), tokenizer);
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
