// chaski chat as somebody at a terminal has it: a pseudo terminal, keys that are pressed, and what
// the screen shows.
#include <poll.h>
#include <pty.h>

#include <chrono>

#include "tests/program.h"

using namespace chaski::test;

namespace {

class Screen {
 public:
  explicit Screen(const Arguments& arguments, const char* term = "dumb") {
    Arguments all = {chaski_binary()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    setenv("TERM", term, 1);
    pid_ = ::forkpty(&keyboard_, nullptr, nullptr, nullptr);
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

  // What was shown since the last call, up to and with `text`. Fails when it takes too long, or
  // when the program has ended without it.
  std::string until(const std::string& text) {
    return take([&] {
      const size_t at = shown_.find(text);
      return at == std::string::npos ? at : at + text.size();
    });
  }
  // The same, up to so many bytes.
  std::string until(size_t bytes) {
    return take([&] { return shown_.size() < bytes ? std::string::npos : bytes; });
  }

  // The exit status, 137 if the program does not end by itself.
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
  static constexpr std::chrono::seconds kPatience{30};

  // found() is where what is waited for ends, npos as long as it is not there.
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

  // False when nobody writes any more.
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
  std::string shown_;
};

constexpr const char* kCtrlC = "\x03";

}  // namespace

TEST_CASE("cli/chat on a terminal: Ctrl-C stops the answer or drops the line, never the program") {
  setenv("CHASKI_ISA", "scalar", 1);  // slow: an answer that nobody stops takes seconds
  Screen screen({"chat", "--device", "cpu", "-t", "1", "--ignore-end", "--seed", "1", "-v"});
  unsetenv("CHASKI_ISA");
  screen.until("> ");
  screen.type("Tell me a story.\r");
  screen.until(200);  // more than the echo of the question, which may come twice
  screen.type(kCtrlC);
  const std::string answer = screen.until("> ");
  CHECK_MESSAGE(answer.find("the context of") == std::string::npos, answer);
  CHECK_MESSAGE(answer.find("prompt ") != std::string::npos, answer);  // it ended in good order
  CHECK(answer.size() < 1000);

  screen.type(kCtrlC);
  screen.until("^C (/quit or Ctrl-D ends the chat)");
  screen.until("> ");
  screen.type("/nonsense");
  screen.until("/nonsense");
  screen.type(kCtrlC);
  CHECK(screen.until("> ").find("is no command") == std::string::npos);
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: Ctrl-C between two keys is not lost") {
  if (!can_preload()) return;
  setenv("LD_PRELOAD", faults_shim().c_str(), 1);
  setenv("FAULT_SIGNAL", "poll:1:2", 1);  // just before it waits for the first key
  Screen screen({"chat", "--device", "cpu"});
  unsetenv("LD_PRELOAD"), unsetenv("FAULT_SIGNAL");
  screen.until("^C (/quit or Ctrl-D ends the chat)");
  screen.until("> ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/run on a terminal: Ctrl-C ends it with 130") {
  setenv("CHASKI_ISA", "scalar", 1);
  Screen screen({"run", "--device", "cpu", "-t", "1", "--ignore-end", "--seed", "1"});
  unsetenv("CHASKI_ISA");
  screen.until("Once upon a time");
  screen.type(kCtrlC);
  screen.until("seed 1");
  CHECK(screen.status() == 130);
}

TEST_CASE("cli/chat on a terminal: a paste of many lines is one message") {
  const TempFolder folder;
  std::string pasted;
  for (int i = 1; i <= 200; ++i) pasted += "line " + std::to_string(i) + "\t\\ \u00e9\r";
  Screen screen({"chat", "--device", "cpu", "-n", "3", "-c", "8192", "--seed", "1"});
  screen.until("> ");
  screen.type("see ");
  screen.type("\033[200~" + pasted + "\033[201~");
  screen.until("[paste 1: 200 lines]");
  screen.type("\033[200~ and this\033[201~\r");
  screen.until("> ");
  screen.type("/save " + folder / "talk" + "\r");
  screen.until("messages in");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  const std::string saved = read_file(folder / "talk");
  CHECK_MESSAGE(
      saved.starts_with(R"({"messages":[{"role":"user","content":"see line 1\t\\ é\nline 2\t)"),
      saved);
  CHECK_MESSAGE(saved.find(R"(\nline 200\t\\ é and this"})") != std::string::npos, saved);
}

TEST_CASE("cli/chat on a terminal: what is typed beside an answer waits for the next line") {
  const TempFolder folder;
  Screen screen({"chat", "--device", "cpu", "-t", "1", "-n", "2000", "-c", "8192", "--ignore-end",
                 "--seed", "1"},
                "xterm");
  std::string pasted;
  for (int i = 1; i <= 200; ++i) pasted += "more than the system holds " + std::to_string(i) + "\r";
  screen.until("> ");
  screen.type("Tell me a story.\r");
  screen.until("story.");
  screen.until(100);  // of the answer
  screen.type("typed ahead ");
  screen.type("\033[200~" + pasted + "\033[201~");
  screen.type("\r");
  const std::string answer = screen.until("> ");
  CHECK_MESSAGE(answer.find("typed ahead") == std::string::npos, answer);
  CHECK_MESSAGE(answer.find("more than") == std::string::npos, answer);
  screen.until("typed ahead [paste 1: 200 lines]");
  screen.until("> ");
  screen.type("/save " + folder / "talk" + "\r");
  screen.until(" in ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  const std::string saved = read_file(folder / "talk");
  CHECK_MESSAGE(
      saved.find(R"({"role":"user","content":"typed ahead more than the system holds 1\nmore)") !=
          std::string::npos,
      saved);
}

TEST_CASE("cli/chat on a terminal: Ctrl-C keeps what was typed, /save no other file's name") {
  const TempFolder folder;
  const std::string model = folder / "model.quipu";
  std::filesystem::copy_file(kStory, model);
  setenv("CHASKI_ISA", "scalar", 1);
  Screen screen({"chat", "-m", model, "--device", "cpu", "-t", "1", "--ignore-end", "--seed", "1"});
  unsetenv("CHASKI_ISA");
  screen.until("> ");
  screen.type("Tell me a story.\r");
  screen.until(200);
  screen.type("/save " + model);
  screen.type(kCtrlC);
  screen.until("> ");
  screen.type("\r");
  screen.until("holds no conversation");
  screen.until("> ");
  screen.type("/bye\r");
  CHECK(screen.status() == 0);
  CHECK(read_file(model) == read_file(kStory));
}

TEST_CASE("cli/chat on a terminal: pastes are marked only while a line is typed") {
  Screen screen({"chat", "--device", "cpu", "-n", "3"}, "xterm");
  screen.until("\033[?2004h");
  screen.until("> ");
  screen.type("\033[D/quit\r");  // an escape that is no paste
  screen.until("\033[?2004l");
  CHECK(screen.status() == 0);
}
