// Follows tool calls while they are generated, so that their arguments can be sent as they come.
//
// A call begins when the name of a known function and the first brace of its arguments are there,
// in this order. What comes before is short. Every other spelling is left to read_calls(), which
// reads whole answers (call_reader.h); then the scanner stays silent.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/conversation/tools.h"

namespace chaski {

class CallScanner {
 public:
  // Both must outlive the object.
  CallScanner(const ToolSyntax& syntax, const Tools& tools) : syntax_(syntax), tools_(tools) {}

  struct Step {
    size_t call;            // counts the calls from 0
    std::string arguments;  // more of them, without white space outside of texts; may be empty
  };
  // `text` begins with the first call, marks included, and is longer than at the last time. Returns
  // what has come since then. A call is new if calls() did not have it.
  std::vector<Step> follow(std::string_view text);

  struct Call {
    std::string name, arguments;  // arguments: so far
  };
  const std::vector<Call>& calls() const { return calls_; }

 private:
  enum class State { before_call, arguments, after_arguments, lost };
  enum class Found { yes, no, more };  // more: the text ends too early to say
  Found find_call(std::string_view rest);
  Found find_name(std::string_view& rest, std::string& name) const;
  void take_arguments(std::string_view text, std::vector<Step>& steps);
  bool take_value(char c);  // true: the brace that ends the value

  const ToolSyntax& syntax_;
  const Tools& tools_;
  State state_ = State::before_call;
  size_t at_ = 0;  // bytes of the text that are read
  int depth_ = 0;  // of open braces
  bool in_text_ = false, escaped_ = false;
  std::vector<Call> calls_;
};

}  // namespace chaski
