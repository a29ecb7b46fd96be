// What tests share: where the test data is, and a visible skip if it is not there.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/kit/doctest.h"

namespace chaski::test {

// Real models, vocabularies and texts in CHASKI_TEST_DATA, default ../shared/data. They are not
// part of the project.
inline std::string data(const std::string& relative) {
  const char* folder = std::getenv("CHASKI_TEST_DATA");
  return std::string(folder ? folder : "../shared/data") + "/" + relative;
}
inline std::string golden(const std::string& relative) { return "tests/golden/" + relative; }
// All golden models: their folders, or a GGUF file if chaski reads the model from no other.
inline std::vector<std::string> golden_models() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(golden("models"))) {
    if (!entry.is_directory()) continue;
    const bool is_folder = std::filesystem::exists(entry.path() / "config.json");
    all.push_back(is_folder ? entry.path() : entry.path() / "model.gguf");
  }
  return all;
}

// Use: if (!have(path)) return;  It prints a line that is easy to see in the log.
inline bool have(const std::string& path) {
  if (std::filesystem::exists(path)) return true;
  std::fprintf(stderr, "SKIPPED: %s is not there\n", path.c_str());
  return false;
}

// Whether madvise() asked for huge pages at an address: VmFlags has "hg" then.
inline bool asked_for_huge_pages(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      found = uintptr_t(address) >= begin && uintptr_t(address) < end;
    if (found && line.starts_with("VmFlags:")) return line.find(" hg") != line.npos;
  }
  return false;
}

// Fixed texts, so that no test depends on the words of a document.
constexpr const char *kCalibrationText = "tests/golden/text/calibration.txt",
                     *kEvaluationText = "tests/golden/text/evaluation.txt";

inline std::string read_file(const std::string& path) {
  std::ostringstream text;  // as a block: tests are compiled without optimization
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

// Writes the file and returns its path. Creates its folder if there is none.
inline std::string write_file(const std::string& path, std::string_view text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Reduces runs of spaces to one, for tables whose columns adapt to their contents.
inline std::string squeezed(std::string text) {
  text.erase(
      std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
      text.end());
  return text;
}

inline size_t files_in(const std::string& folder) {
  return size_t(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// The error that `action` throws; one with code `done` if it throws none.
template <class F>
Error error_of(F action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return Error(Exit::done, "no error");
}

// A folder for this test alone, removed at its end.
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
