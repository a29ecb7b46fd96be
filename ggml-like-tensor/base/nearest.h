// Suggests the known name that was probably meant, for helpful error messages.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// The name with the smallest edit distance (Levenshtein 1965; two swapped neighbours count once);
// of several the first. Case is ignored. `known` is not empty. Only the first 100 bytes of a name
// count.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// The nearest name that was probably meant; "" if there is none. It begins with the same letter (or
// the first two are swapped), and at most a third of the longer name differs. Dashes and slashes at
// the beginning do not count.
std::string likely_name(std::string_view name, const std::vector<std::string>& known);

// "a, b or c"; `names` is not empty.
std::string one_of(const std::vector<std::string>& names);

// "a, b or c (nearest: b)": what was expected instead of `name`. Without the nearest if more than
// half of it differs. More than 48 names are only counted.
std::string expected_names(std::string_view name, const std::vector<std::string>& known);

}  // namespace chaski
