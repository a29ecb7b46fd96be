// Functions that a model may call, in the form that OpenAI's interface gave them, and the calls in
// an answer. The chat template shows the functions to the model (own_template.h). How an answer
// spells a call is the family's, and is known by marks in the template.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/jinja_value.h"

namespace chaski {

struct ToolCall {
  std::string id;  // nine letters and digits, which is what Mistral's templates ask for
  std::string name;
  std::string arguments;  // a JSON object
  bool operator==(const ToolCall&) const = default;
};

class Tools {
 public:
  Tools() = default;  // none
  // A list of {"type": "function", "function": {"name": ..., "description": ..., "parameters":
  // SCHEMA}}, or of what stands behind "function". Throws Error(bad_file) that names the place.
  static Tools parse(const std::string& file, const std::string& text);

  bool empty() const { return names_.empty(); }
  const std::vector<std::string>& names() const { return names_; }
  // For the template: all its characters come from outside.
  jinja::Value value() const;
  // A JSON schema of one call: of one function, or of any of them if `name` is empty. `arguments`
  // is the key that the family has for them.
  std::string schema_of_call(std::string_view name, std::string_view arguments) const;

 private:
  std::string text_;
  std::vector<std::string> names_;
};

// A call as a template sees it: {"type": "function", "id": ..., "function": {"name": ...,
// "arguments": {...}}}. All its characters come from outside.
jinja::Value value_of_call(const ToolCall& call);

// Whether the text is a JSON object, with nothing around it, that is not nested without measure.
bool is_json_object(std::string_view text);

struct ToolSyntax {
  std::string_view mark;       // of the template
  std::string_view begins;     // a call, or a list of them
  std::string_view ends = {};  // may be missing at the end of an answer; empty: nothing does
  std::string_view arguments = "arguments";  // the key beside "name"
  // What stands around one call that is forced.
  std::string_view opens = {}, closes = {};
  bool bare = false;           // an answer may be a call without marks
  bool name_in_front = false;  // and not in the JSON
  bool can_be_forced = true;
};
// Whether an answer that begins so may be a call without marks: JSON, perhaps as a block of code.
// Nothing as long as more has to be seen.
std::optional<bool> begins_bare_call(std::string_view answer);
// By the text of a template; null: the family's way to write a call is not known.
const ToolSyntax* tool_syntax(std::string_view chat_template);

struct ToolAnswer {
  std::string content;  // without the calls, without the white space around it
  std::vector<ToolCall> calls;
  // A line for each call that is damaged, which stays in the content, and for each whose function
  // is not among the tools, which stays among the calls.
  std::vector<std::string> faults;
  bool damaged = false;
};
// `answer` has its control tokens spelled. What is inside a thought is no call. Ids count from
// `calls_before` on.
ToolAnswer read_answer(const ToolSyntax& syntax, const Tools& tools, std::string_view answer,
                       size_t calls_before);

}  // namespace chaski
