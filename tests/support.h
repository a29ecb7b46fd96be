// What tests share: where the data is, and a visible skip where it is not.
#pragma once
#include "ggml-like-tensor/base/error.h"
#undef CHECK  // here the word is doctest's
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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
