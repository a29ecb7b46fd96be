#include "ggml-like-tensor/base/split_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

namespace chaski {

std::vector<std::string> names_of_parts(const std::string& name) {
  constexpr int kMostParts = 1000;
  const size_t of = name.rfind("-of-"), dot = name.rfind('.');
  const auto digits = [&](size_t at) {
    return at + 5 <= name.size() &&
           std::all_of(name.begin() + long(at), name.begin() + long(at + 5),
                       [](unsigned char c) { return std::isdigit(c); });
  };
  if (of == std::string::npos || of < 6 || name[of - 6] != '-' || dot != of + 9 ||
      !digits(of - 5) || !digits(of + 4))
    return {name};
  const int count = std::stoi(name.substr(of + 4, 5));
  if (count < 1 || count > kMostParts) return {name};
  std::vector<std::string> parts;
  for (int i = 1; i <= count; ++i)
    parts.push_back(name.substr(0, of - 5) + fmt::format("{:05}", i) + name.substr(of));
  return parts;
}

}  // namespace chaski
