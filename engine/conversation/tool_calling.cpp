#include "engine/conversation/tool_calling.h"

#include "engine/conversation/own_template.h"
#include "engine/grammar/schema/json_schema.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

ToolCalling::ToolCalling(const ToolOptions& options, const ChatTemplate& format,
                         std::string_view template_text, const Tokenizer& tokenizer,
                         const std::string& model) {
  if (options.tools.empty()) return;
  if (!format.own() || !format.own()->takes_tools())
    fail(Exit::usage,
         "{}: its chat template does not show tools to the model, expected a model trained to call "
         "tools",
         model);
  syntax_ = tool_syntax(template_text);
  const bool forces = options.choice != "auto";
  if (forces && (!syntax_ || !syntax_->can_be_forced))
    fail(Exit::usage,
         "{}: chaski cannot force calls in the form that this chat template uses, expected "
         "--tool-choice auto",
         model);
  if (!syntax_) {
    notice_ = model + ": the form of tool calls in this chat template is unknown, calls stay text";
    return;
  }
  for (const std::string_view mark : {syntax_->begins, syntax_->ends, std::string_view("[ARGS]")})
    if (const auto token = tokenizer.find(mark); token && tokenizer.is_control(*token))
      spelled_.push_back(*token);
  if (!forces) return;
  const std::string schema = options.tools.schema_of_call(
      options.choice == "required" ? "" : options.choice, syntax_->arguments);
  forced_ = parse_json_schema({"--tools", schema, Exit::bad_file});
}

}  // namespace chaski
