// Functions that a model may call, in OpenAI's format, and how its calls are spelled. The chat
// template shows the functions to the model (own_template.h). Each model family spells calls in its
// own way, which is recognised by marks in the template. call_reader.h reads the calls of an
// answer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/jinja_value.h"

namespace chaski {

struct ToolCall {
  std::string id;  // nine letters and digits: Mistral's templates require that
  std::string name;
  std::string arguments;  // a JSON object
  bool operator==(const ToolCall&) const = default;
};

class Tools {
 public:
  Tools() = default;  // none
  // Reads a list of {"type": "function", "function": {"name": ..., "description": ...,
  // "parameters": SCHEMA}}, or of the inner objects. Throws Error(bad_file) with the place.
  static Tools parse(const std::string& file, const std::string& text);

  bool empty() const { return names_.empty(); }
  const std::vector<std::string>& names() const { return names_; }
  // The value for the template. All its characters are marked as not from the template.
  jinja::Value value() const;
  // The list as JSON with two spaces a level; empty without tools.
  std::string indented() const;
  // A line of JSON for each function: its name, description and parameters.
  std::string lines() const;
  // A JSON schema of one call of the function `name`, or of any function if `name` is empty.
  // `arguments` is the family's key for the arguments.
  std::string schema_of_call(std::string_view name, std::string_view arguments) const;

 private:
  std::string text_;
  std::vector<std::string> names_;
};

// A JSON value for a template. All its characters are marked as not from the template.
jinja::Value value_of_json(const std::string& json);
// A call as a template receives it: {"type": "function", "id": ..., "function": {"name": ...,
// "arguments": {...}}}. All its characters are marked as not from the template.
jinja::Value value_of_call(const ToolCall& call);

// The ids of the calls of one answer. They follow from its prompt and its seed, so the same request
// gets the same ids, and the calls of other answers have others.
class CallIds {
 public:
  CallIds(std::span<const std::byte> prompt, uint64_t seed);
  std::string of(size_t call) const;  // `call` counts the calls of the answer from 0

 private:
  uint64_t first_;
};

// True if both texts are JSON of the same value.
bool same_json(std::string_view a, std::string_view b);
// The end of the JSON value at the start of the text; npos if it does not end, or is nested deeper
// than recursive code can take. Only brackets are counted; the parser checks the rest.
size_t end_of_json(std::string_view text);
// True if the text is one JSON object and nothing else, nested at most 50 levels.
bool is_json_object(std::string_view text);

struct ToolSyntax {
  std::string_view mark;       // a template that contains it uses this spelling
  std::string_view begins;     // the text before a call or a list of calls
  std::string_view ends = {};  // the text after it; may be missing at the end of an answer
  std::string_view arguments = "arguments";  // the key of the arguments
  std::string_view opens = {}, closes = {};  // the texts around one forced call
  bool bare = false;                         // an answer may be a call without marks
  bool name_first = false;                   // the name comes before the JSON
  bool can_be_forced = true;
};
// Chosen by the text of a template; null: the spelling of calls is unknown.
const ToolSyntax* tool_syntax(std::string_view chat_template);
// For models whose template has none: <tool_call> around JSON, the spelling of most models.
const ToolSyntax& common_tool_syntax();

}  // namespace chaski
