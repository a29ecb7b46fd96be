// The parts of JSON texts from which the rules of a schema are built.
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
  Rules::Part integer(std::optional<int64_t> least, std::optional<int64_t> most);
  // Multiples of `of` >= 1 within the bounds. They are supported if `of` is at most 100, or if
  // there are at most 1000 of them.
  static bool can_be_multiple(int64_t of, std::optional<int64_t> least,
                              std::optional<int64_t> most);
  Rules::Part multiple(int64_t of, std::optional<int64_t> least, std::optional<int64_t> most);
  struct Bounds {
    std::optional<int64_t> least, most;
    bool least_too = true, most_too = true;  // false: the bound itself is excluded
  };
  Rules::Part number(const Bounds& bounds);
  Rules::Part comma();  // with space after it

 private:
  Rules::Part digits(uint64_t least, uint64_t most);
  Rules::Part same_length(std::string_view least, std::string_view most);
  void define_value();

  Rules& rules_;
  Rules::Rule space_, character_, string_, value_, object_, array_, digit_;
};

}  // namespace chaski
