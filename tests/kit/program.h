// Runs the real program and returns its exit status, stdout and stderr. CHASKI_BIN names it; the
// default is build/chaski.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/kit/support.h"

extern char** environ;

namespace chaski::test {

// The bundled model.
inline const std::string kStory = "models/bundled/story.quipu";

inline std::string chaski_binary() {
  const char* path = std::getenv("CHASKI_BIN");
  return path ? path : "build/chaski";
}

// AddressSanitizer reserves terabytes of addresses and keeps freed memory for a while. So no limit
// of memory can be tested.
inline bool has_address_sanitizer() { return chaski_binary().find("asan") != std::string::npos; }

// The library that makes system calls fail (tests/faults/shim.c). It cannot be preloaded together
// with AddressSanitizer.
inline std::string faults_shim() {
  const char* path = std::getenv("CHASKI_FAULTS_SHIM");
  return std::filesystem::absolute(path ? path : "build/faults.so").string();
}
inline bool can_preload() { return !has_address_sanitizer() && have(faults_shim()); }

// Sets an environment variable, and restores its old value in the destructor.
class OwnVariable {
 public:
  OwnVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  OwnVariable(const OwnVariable&) = delete;
  ~OwnVariable() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }

 private:
  std::string name_;
  std::optional<std::string> before_;
};

struct Outcome {
  int status;  // as in a shell: 128 + number for a signal
  std::string out, err;
  uint64_t peak_bytes = 0;  // maximum resident memory
  bool one_error_line() const {
    return err.starts_with("chaski: error: ") && std::count(err.begin(), err.end(), '\n') == 1 &&
           err.ends_with('\n');
  }
  bool error_says(const std::string& text) const { return err.find(text) != std::string::npos; }
};

using Arguments = std::vector<std::string>;

inline std::string joined(const Arguments& arguments) {
  std::string line;
  for (const std::string& argument : arguments) line += argument + " ";
  return line;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The last line that is not empty, without its line end.
inline std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return end == std::string::npos
             ? ""
             : text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

// The arguments of a run of the bundled model with a fixed prompt, and `more`.
inline Arguments run_story(const Arguments& more) {
  Arguments all = {"run", "-m", kStory, "-p", "Once upon a time"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Program {
 public:
  // Output goes to files, so that the program never blocks; `out` may be another file for stdout.
  Program(const Arguments& arguments, const std::string& input, const std::string& out = "",
          const std::string& binary = chaski_binary())
      : out_(out.empty() ? folder_ / "out" : out) {
    std::ofstream(folder_ / "in", std::ios::binary) << input;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, (folder_ / "in").c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, 2, (folder_ / "err").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    Arguments all = {binary};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    REQUIRE_MESSAGE(posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ) == 0,
                    "cannot start ", argv[0]);
    posix_spawn_file_actions_destroy(&files);
  }
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void signal(int number) { ::kill(pid_, number); }
  std::string out_so_far() const { return read_file(out_); }
  // Memory of the running program that is not of a file; 0 when it has ended.
  uint64_t private_bytes() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    constexpr std::string_view kField = "RssAnon:";
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(kField)) return std::stoull(line.substr(kField.size())) * 1024;
    return 0;
  }

  Outcome wait() {
    int status = 0;
    rusage used = {};
    ::wait4(pid_, &status, 0, &used);
    pid_ = 0;
    const bool special = !std::filesystem::is_regular_file(out_);  // /dev/full
    return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
            special ? "" : read_file(out_), read_file(folder_ / "err"),
            uint64_t(used.ru_maxrss) * 1024};
  }

 private:
  TempFolder folder_;
  std::string out_;
  pid_t pid_ = 0;
};

inline Outcome chaski_run(const Arguments& arguments, const std::string& input = "") {
  return Program(arguments, input).wait();
}

// Checks for an error: the status, one line that contains `says`, nothing on stdout.
inline void check_one_line(const Outcome& outcome, int status, const std::string& says) {
  CHECK_MESSAGE(outcome.status == status, outcome.err);
  CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
  CHECK_MESSAGE(outcome.error_says(says), outcome.err);
  CHECK(outcome.out.empty());
}

}  // namespace chaski::test
