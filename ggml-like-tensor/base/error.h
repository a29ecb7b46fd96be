// Errors of input and environment, with their exit codes. An Error is thrown where the problem is
// found (load, plan or flag time), caught once in main(), and printed as one line. Bugs are not
// Errors; ENSURE reports them.
#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace chaski {

enum class Exit : int {
  done = 0,
  usage = 2,
  bad_file = 3,
  memory = 4,
  io = 5,
  device = 6,
  prompt_too_long = 7,
  non_finite = 8,
  incomplete = 9,     // not an error: the answer is printed, but does not satisfy its grammar
  failed_lines = 10,  // not an error: some results of a batch are errors
};

// At most 1000 bytes of a line: its beginning and its end. A name in a damaged file may be as long
// as the file.
std::string readable(const std::string& line);

class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& line) : std::runtime_error(readable(line)), code(code) {}
  Error(Exit code, const std::string& line, int64_t need, int64_t have) : Error(code, line) {
    this->need = need, this->have = have;
  }
  Exit code;
  // Tokens that a request needs, and the most that it could have: set if a prompt is too long for
  // the context, or if its KV pages can never suffice. 0: the error is about something else.
  int64_t need = 0, have = 0;
};

// fail(Exit::bad_file, "{}: tensor {} has shape ({}, {}), expected ({}, {})", ...)
template <class... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Only the beginning of a file is there, such as of a download that was interrupted. what() advises
// to download the rest.
struct CutShort : Error {
  // `whole` is the size of the whole file in bytes.
  CutShort(const std::string& file, uint64_t bytes, uint64_t whole);
  std::string file, found;  // found: "42% of it is there, 42 of 100 bytes"
  std::string without_advice() const;
};

// Makes text from a file or a model safe for a terminal: control bytes and invalid UTF-8 become
// \xNN.
std::string escaped(std::string_view text);
// The same without allocating memory: as many characters as fit. Returns the bytes written.
size_t escape(std::string_view text, char* out, size_t room);

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* why);

}  // namespace chaski

// Reports a bug if `condition` does not hold. Always on. DEBUG_ENSURE is for kernels and is on only
// in debug builds.
#define ENSURE(condition, why) \
  ((condition) ? (void)0 : ::chaski::check_failed(__FILE__, __LINE__, #condition, why))
#ifdef CHASKI_DEBUG
#define DEBUG_ENSURE(condition, why) ENSURE(condition, why)
#else
#define DEBUG_ENSURE(condition, why) ((void)0)
#endif
