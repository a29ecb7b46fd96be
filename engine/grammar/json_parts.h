// The pieces of JSON texts that schemas are put together from.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/rules.h"

namespace chaski {

class JsonParts {
 public:
  explicit JsonParts(Rules& rules);

  Rules::Part space() { return rules_.call(space_); }
  // One character of the set as it stands in a string.
  Rules::Part character(const CodeSet& set);
  Rules::Part any_string() { return rules_.call(string_); }
  Rules::Part string(int least, int most);  // so many characters; most: Rules::kUnlimited
  // A string of a pattern, without the quotes around it.
  Rules::Part quoted(Rules::Part inside);
  // A member's name that is none of these; written without backslashes, so that it is not one of
  // them in disguise.
  Rules::Part name_besides(const std::vector<std::string>& names);
  Rules::Part any_value() { return rules_.call(value_); }
  Rules::Part any_object() { return rules_.call(object_); }
  Rules::Part integer(std::optional<int64_t> least, std::optional<int64_t> most);
  // Of a number from 1 on; can_be_multiple(): it is at most 100, or there are at most 1000.
  static bool can_be_multiple(int64_t of, std::optional<int64_t> least,
                              std::optional<int64_t> most);
  Rules::Part multiple(int64_t of, std::optional<int64_t> least, std::optional<int64_t> most);
  struct Bounds {
    std::optional<int64_t> least, most;
    bool least_too = true, most_too = true;  // whether the bounds themselves are allowed
  };
  Rules::Part number(const Bounds& bounds);
  Rules::Part comma();  // and space

 private:
  Rules::Part digits(uint64_t least, uint64_t most);
  Rules::Part same_length(std::string_view least, std::string_view most);
  void define_value();

  Rules& rules_;
  Rules::Rule space_, character_, string_, value_, object_, array_, digit_;
};

}  // namespace chaski
