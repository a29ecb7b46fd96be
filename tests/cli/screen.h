// A program in a pseudo terminal: a test types keys and waits for output.
#pragma once
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/kit/program.h"

namespace chaski::test {

class Screen {
 public:
  // `state`: XDG_STATE_HOME of the program, for its history file; by default not writable.
  explicit Screen(const Arguments& arguments, const char* term = "dumb",
                  const std::string& state = "/dev/null") {
    Arguments all = {chaski_binary()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    setenv("TERM", term, 1);
    setenv("XDG_STATE_HOME", state.c_str(), 1);
    winsize size{};
    size.ws_row = 40, size.ws_col = 40;
    mode_ = usual_mode();
    pid_ = ::forkpty(&keyboard_, nullptr, &mode_, term == std::string("dumb") ? nullptr : &size);
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ~Screen() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(keyboard_);
  }

  void type(const std::string& keys) {
    REQUIRE(::write(keyboard_, keys.data(), keys.size()) == ssize_t(keys.size()));
  }

  // Waits for the prompt, types, and waits for output.
  void type_at_prompt(const std::string& keys, const std::string& shown) {
    CAPTURE(keys);
    until("> ");
    type(keys);
    until(shown);
  }

  // After a typed message: waits until chaski holds typed text back, because its prompt is being
  // read. Ctrl-C is then a signal.
  void until_typing_is_held() {
    until("\033[?2004l");  // the editor of the message ends
    until("\033[?2004h");
  }

  void resize(int columns) {
    winsize size{};
    size.ws_row = 40, size.ws_col = static_cast<unsigned short>(columns);
    ::ioctl(keyboard_, TIOCSWINSZ, &size);
  }
  void signal(int number) { ::kill(pid_, number); }
  // Waits until the program has a handler for the signal.
  void until_caught(int number) const {
    const std::string status = fmt::format("/proc/{}/status", pid_);
    for (int tries = 0; tries < 3000; ++tries) {
      std::istringstream lines(read_file(status));
      for (std::string line; std::getline(lines, line);)
        if (line.starts_with("SigCgt:") &&
            std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1)
          return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL("no handler for signal ", number);
  }
  void to_first_mode() { ::tcsetattr(keyboard_, TCSANOW, &mode_); }
  // True if the terminal is in the mode that it had before the program.
  bool is_as_before() const {
    termios now;
    ::tcgetattr(keyboard_, &now);
    return now.c_lflag == mode_.c_lflag && now.c_iflag == mode_.c_iflag &&
           now.c_oflag == mode_.c_oflag;
  }

  // Waits for `text`, in which a line may be broken at each space. Returns the output since the
  // last call, up to the end of `text`. Fails after 30 seconds, or if the program ends first.
  std::string until(const std::string& text) {
    return take([&] { return end_of(text); });
  }
  // Waits for a number of bytes.
  std::string until(size_t bytes) {
    return take([&] { return shown_.size() < bytes ? std::string::npos : bytes; });
  }

  const std::string& left() const { return shown_; }  // output that until() has not returned

  // Waits for the end of the program. Returns its exit status; 137 if it had to be killed.
  int status() {
    const Clock::time_point end = Clock::now() + kPatience;
    while (more()) {
      if (Clock::now() > end) ::kill(pid_, SIGKILL);
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  using Clock = std::chrono::steady_clock;
  // With AddressSanitizer, a long prompt alone takes half of 30 s.
  const std::chrono::seconds kPatience{has_address_sanitizer() ? 120 : 30};

  // The mode of a new terminal.
  static termios usual_mode() {
    int keyboard, terminal;
    termios mode{};
    REQUIRE(::openpty(&keyboard, &terminal, nullptr, nullptr, nullptr) == 0);
    ::tcgetattr(terminal, &mode);
    ::close(terminal);
    ::close(keyboard);
    return mode;
  }

  // The end of the first such text in the output; npos if there is none.
  size_t end_of(const std::string& text) const {
    const std::string_view shown = shown_;
    for (size_t begin = 0; begin < shown.size(); ++begin) {
      size_t at = begin;
      bool same = true;
      for (size_t i = 0; i < text.size() && same; ++i) {
        const bool broken = text[i] == ' ' && shown.substr(at, 2) == "\r\n";
        same = broken || (at < shown.size() && shown[at] == text[i]);
        at += broken ? 2 : 1;
      }
      if (same) return at;
    }
    return std::string::npos;
  }

  // found() returns the number of bytes to take, or npos to wait for more.
  template <class Found>
  std::string take(Found found) {
    const Clock::time_point end = Clock::now() + kPatience;
    size_t at;
    while ((at = found()) == std::string::npos && more() && Clock::now() < end) {
    }
    REQUIRE_MESSAGE(at != std::string::npos, "only \"", shown_, "\"");
    const std::string before = shown_.substr(0, at);
    shown_.erase(0, at);
    return before;
  }

  // Reads more output. False if the program has closed the terminal.
  bool more() {
    pollfd out{keyboard_, POLLIN, 0};
    if (::poll(&out, 1, 1000) == 0) return true;
    char bytes[4096];
    const ssize_t n = ::read(keyboard_, bytes, sizeof bytes);
    if (n > 0) shown_.append(bytes, size_t(n));
    return n > 0;
  }

  int keyboard_ = -1;
  pid_t pid_ = 0;
  termios mode_{};
  std::string shown_;
};

inline constexpr const char *kCtrlC = "\x03", *kKeyUp = "\033[A", *kKeyDown = "\033[B",
                            *kAltEnter = "\033\r";
inline constexpr const char *kPaste = "\033[200~", *kPasted = "\033[201~";  // around a paste

inline void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// The messages of a role in a saved conversation.
inline std::vector<std::string> said_in(const std::string& path, const std::string& role) {
  std::vector<std::string> out;
  const auto saved = nlohmann::json::parse(read_file(path));
  for (const auto& message : saved["messages"])
    if (message["role"] == role) out.push_back(message["content"]);
  return out;
}

}  // namespace chaski::test
