// Which of the names that are known somebody may have meant, for refusals that help.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// The name with the smallest edit distance (Levenshtein 1965; two neighbours that changed places
// count once), small and capital letters being the same; of several the first. `known` is not
// empty. Only the first 100 bytes of a name count.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// The same, or "" where too little of it is alike to be what was meant: more than a third of the
// longer name differs.
std::string likely_name(std::string_view name, const std::vector<std::string>& known);

// "a, b or c"; `names` is not empty.
std::string one_of(const std::vector<std::string>& names);

// "a, b or c (nearest: b)": what was expected in place of `name`. Of more than 30 only the nearest
// is said.
std::string expected_names(std::string_view name, const std::vector<std::string>& known);

}  // namespace chaski
