// What tests share: where the data is, and a visible skip where it is not.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/kit/doctest.h"

namespace chaski::test {

// Real models, vocabularies and texts: CHASKI_TEST_DATA, default ../shared/data. Not part of the
// project.
inline std::string data(const std::string& relative) {
  const char* folder = std::getenv("CHASKI_TEST_DATA");
  return std::string(folder ? folder : "../shared/data") + "/" + relative;
}
inline std::string golden(const std::string& relative) { return "tests/golden/" + relative; }

// if (!have(path)) return;  prints a line that cannot be missed in the log.
inline bool have(const std::string& path) {
  if (std::filesystem::exists(path)) return true;
  std::fprintf(stderr, "SKIPPED: %s is not there\n", path.c_str());
  return false;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The file's path; its folder is made too, if there is none.
inline std::string write_file(const std::string& path, std::string_view text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Runs of spaces as one, for tables whose columns are as wide as what stands in them.
inline std::string squeezed(std::string text) {
  text.erase(
      std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
      text.end());
  return text;
}

inline size_t files_in(const std::string& folder) {
  return size_t(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// The error `action` ends with; code done if it ends without.
template <class F>
Error error_of(F action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return Error(Exit::done, "no error");
}

// A folder of this test's own, removed when it ends.
struct TempFolder {
  std::string path;
  TempFolder() {
    char name[] = "/tmp/chaski_test_XXXXXX";
    path = mkdtemp(name);
  }
  ~TempFolder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

}  // namespace chaski::test
