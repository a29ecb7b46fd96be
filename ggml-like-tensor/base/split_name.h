// Names of a file that is kept in several parts: NAME-00001-of-00003.gguf, NAME-00002-of-...
#pragma once
#include <string>
#include <vector>

namespace chaski {

constexpr size_t kPartMark = 15;  // bytes of "-00001-of-00003", in front of the dot

// Of the name or path of any part: those of all parts, first to last. Of any other name, and of one
// that speaks of more than 1000 parts, the name.
std::vector<std::string> names_of_parts(const std::string& name);

}  // namespace chaski
