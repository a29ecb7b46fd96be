// The formats of weights and of keys and values in a line each, for --help.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace chaski {

// Each of the names, which are of formats that chaski writes, and what it is.
std::vector<std::pair<std::string, std::string>> weight_formats(
    const std::vector<std::string>& names);
std::vector<std::pair<std::string, std::string>> kv_formats(const std::vector<std::string>& names);

}  // namespace chaski
