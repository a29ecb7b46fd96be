// Looking before opening. What cannot be looked at is not there: opening it then says why.
#pragma once
#include <filesystem>
#include <string>
#include <system_error>

namespace chaski {

inline bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

inline bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

}  // namespace chaski
