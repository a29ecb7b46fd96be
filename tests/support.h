// What tests share: where the data is, and a visible skip where it is not.
#pragma once
#include "tests/doctest.h"
#undef CHECK
#define CAPTURE DOCTEST_CAPTURE
#define CHECK DOCTEST_CHECK
#define CHECK_EQ DOCTEST_CHECK_EQ
#define CHECK_FALSE DOCTEST_CHECK_FALSE
#define CHECK_GE DOCTEST_CHECK_GE
#define CHECK_LE DOCTEST_CHECK_LE
#define CHECK_LT DOCTEST_CHECK_LT
#define CHECK_MESSAGE DOCTEST_CHECK_MESSAGE
#define CHECK_NE DOCTEST_CHECK_NE
#define CHECK_NOTHROW DOCTEST_CHECK_NOTHROW
#define CHECK_THROWS_AS DOCTEST_CHECK_THROWS_AS
#define FAIL DOCTEST_FAIL
#define FAIL_CHECK DOCTEST_FAIL_CHECK
#define INFO DOCTEST_INFO
#define MESSAGE DOCTEST_MESSAGE
#define REQUIRE DOCTEST_REQUIRE
#define REQUIRE_EQ DOCTEST_REQUIRE_EQ
#define REQUIRE_MESSAGE DOCTEST_REQUIRE_MESSAGE
#define SUBCASE DOCTEST_SUBCASE
#define TEST_CASE DOCTEST_TEST_CASE

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
