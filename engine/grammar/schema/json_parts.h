// The parts of JSON texts from which the rules of a schema are built.
#pragma once
#include <string>
#include <vector>

#include "engine/grammar/rules.h"

namespace chaski {

class JsonParts {
 public:
  explicit JsonParts(Rules& rules);

  Rules::Part space() { return rules_.call(space_); }
  // The escape sequence of a byte that a string cannot hold; empty for other bytes.
  static std::string escape(uint8_t byte);
  // One character of the set, as a JSON string spells it.
  Rules::Part character(const CodeSet& set);
  Rules::Part any_string() { return rules_.call(string_); }
  Rules::Part string(int least, int most);  // limits in characters; most may be Rules::kUnlimited
  // A string whose content is `inside`.
  Rules::Part quoted(Rules::Part inside);
  // A member name that is not one of `names`. It has no backslashes, so it cannot be an escaped
  // spelling of such a name.
  Rules::Part name_except(const std::vector<std::string>& names);
  Rules::Part any_value() { return rules_.call(value_); }
  Rules::Part any_object() { return rules_.call(object_); }
  Rules::Part number();
  Rules::Part comma();  // with space after it

 private:
  void define_value();

  Rules& rules_;
  Rules::Rule space_, character_, string_, value_, object_, array_;
};

}  // namespace chaski
