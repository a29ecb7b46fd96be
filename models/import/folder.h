// File checks before opening. A path that cannot be examined counts as missing; opening it later
// gives the reason.
#pragma once
#include <filesystem>
#include <string>
#include <system_error>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

inline bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

inline bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// True for a file name without a path, so that no file outside the folder is opened.
inline bool is_plain_name(const std::string& name) {
  const bool plain = name.find_first_of("/\\") == std::string::npos && escaped(name) == name;
  return plain && !name.empty() && !name.starts_with(".") && name.size() <= 255;
}

}  // namespace chaski
