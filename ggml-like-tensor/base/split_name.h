// Names of a file in several parts: NAME-00001-of-00003.gguf, NAME-00002-of-...
#pragma once
#include <string>
#include <vector>

namespace chaski {

constexpr size_t kPartMark = 15;  // bytes of "-00001-of-00003", before the dot

// For the name or path of any part: the names of all parts, first to last. For any other name, and
// for more than 1000 parts: the name itself.
std::vector<std::string> names_of_parts(const std::string& name);

}  // namespace chaski
