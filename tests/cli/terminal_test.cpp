// chaski chat as somebody at a terminal has it: a pseudo terminal, keys that are pressed, and what
// the screen shows.
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/kit/program.h"

using namespace chaski::test;

namespace {

class Screen {
 public:
  // `state`: the folder of what is kept from chat to chat; by default none that can be written.
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

  void resize(int columns) {
    winsize size{};
    size.ws_row = 40, size.ws_col = static_cast<unsigned short>(columns);
    ::ioctl(keyboard_, TIOCSWINSZ, &size);
  }
  void signal(int number) { ::kill(pid_, number); }
  // Until the program has a handler for it.
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
  // Whether the terminal is in the mode that the program found.
  bool is_as_before() const {
    termios now;
    ::tcgetattr(keyboard_, &now);
    return now.c_lflag == mode_.c_lflag && now.c_iflag == mode_.c_iflag &&
           now.c_oflag == mode_.c_oflag;
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

  const std::string& left() const { return shown_; }  // that nobody has waited for

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

  // Of a terminal that nobody has changed.
  static termios usual_mode() {
    int keyboard, terminal;
    termios mode{};
    REQUIRE(::openpty(&keyboard, &terminal, nullptr, nullptr, nullptr) == 0);
    ::tcgetattr(terminal, &mode);
    ::close(terminal);
    ::close(keyboard);
    return mode;
  }

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
  termios mode_{};
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
  screen.until("^C (again, /quit or Ctrl-D ends the chat)");
  screen.until("> ");
  screen.type("/nonsense");
  screen.until("/nonsense");
  screen.type(kCtrlC);
  CHECK(screen.until("> ").find("is not a command") == std::string::npos);
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: Ctrl-C between two keys is not lost") {
  if (!can_preload()) return;
  setenv("LD_PRELOAD", faults_shim().c_str(), 1);
  setenv("FAULT_SIGNAL", "poll:1:2", 1);  // just before it waits for the first key
  Screen screen({"chat", "--device", "cpu"});
  unsetenv("LD_PRELOAD"), unsetenv("FAULT_SIGNAL");
  screen.until("^C (again, /quit or Ctrl-D ends the chat)");
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
  screen.until("is not a conversation");
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

TEST_CASE("cli/chat on a terminal: lines come back, in the next chat too") {
  const TempFolder folder;
  const auto chat = [&] { return Arguments{"chat", "--device", "cpu", "-n", "3", "--seed", "1"}; };
  constexpr const char* kUp = "\033[A";
  {
    Screen screen(chat(), "xterm", folder / "state");
    screen.until("> ");
    screen.type("/sa\t" + folder / "one" + "\r");  // Tab: "/save "
    screen.until("0 messages in " + folder / "one");
    screen.until("> ");
    screen.type("Tell me of a cat.\r");
    screen.until(" of 512 tokens; ");
    screen.until("> ");
    screen.type("/edit\r");
    screen.until("Tell me of a cat.");
    screen.type("\b\b\b\bdog.\r");
    screen.until(" of 512 tokens; ");
    screen.until("> ");
    screen.type("/quit\r");
    CHECK(screen.status() == 0);
  }
  const std::string history = folder / "state/chaski/history";
  CHECK((std::filesystem::status(history).permissions() & std::filesystem::perms(0077)) ==
        std::filesystem::perms::none);
  Screen screen(chat(), "xterm", folder / "state");
  screen.until("> ");
  screen.type(kUp);
  screen.until("/quit");
  screen.type(kUp);
  screen.until("Tell me of a dog.");
  screen.type(kCtrlC);
  screen.until("> ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/notes and verdicts on a terminal break between words") {
  Screen note({"run", "-m", kStory, "-p", "a", "-n", "1", "--temp", "0", "--top-k", "5"}, "xterm");
  note.until(
      "chaski: note: --top-k has no effect at\r\n--temp 0, which takes the most "
      "probable\r\ntoken\r\n");
  Screen doctor({"doctor"}, "xterm");
  CHECK(doctor.status() == 0);
  std::istringstream lines(doctor.left());
  size_t verdicts = 0, more = 0;
  for (std::string line; std::getline(lines, line); line[0] == ' ' ? ++more : ++verdicts) {
    line.erase(line.find_last_not_of('\r') + 1);
    CHECK_MESSAGE((line.size() <= 40 || line.find(' ', 20) == std::string::npos), line);
    if (line[0] == ' ') CHECK(line.find_first_not_of(' ') == 20);
  }
  CHECK(verdicts >= 5);
  CHECK(more >= 5);
}

TEST_CASE("cli/chat on a terminal: words are whole in 40 columns, and --no-word-wrap leaves them") {
  for (const bool wraps : {true, false}) {
    CAPTURE(wraps);
    Arguments arguments = {"chat", "--device", "cpu", "-n", "60", "--seed", "1", "--ignore-end"};
    if (!wraps) arguments.push_back("--no-word-wrap");
    Screen screen(arguments, "xterm");
    screen.until("> ");
    screen.type("Tell me a story.\r");
    screen.until("story.");
    const std::string answer = screen.until(" of 512 tokens; ");
    CHECK((answer.find("\033[K\r\n") != std::string::npos) == wraps);
    screen.type("/quit\r");
    CHECK(screen.status() == 0);
  }
}

namespace {

void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

std::vector<std::string> said_in(const std::string& path, const std::string& role) {
  std::vector<std::string> out;
  const auto saved = nlohmann::json::parse(read_file(path));
  for (const auto& message : saved["messages"])
    if (message["role"] == role) out.push_back(message["content"]);
  return out;
}

}  // namespace

TEST_CASE("cli/chat on a terminal: Tab shows the commands that a beginning may be") {
  Screen screen({"chat", "--device", "cpu", "-n", "3"}, "xterm");
  screen.resize(100);
  screen.until("> ");
  screen.type("/s\t");
  screen.until("/system  /save  /set  /show  /stats");
  screen.until("/s");    // the line, drawn again
  screen.type("h\t\r");  // "/sh" alone is not a command
  screen.until("template: ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: Tab completes files, settings and ways to think") {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "talks");
  for (const char* name : {"talks/one.json", "talks/one.json.kv", "talks/other.json", "talks/.hid"})
    write_file(folder / name, R"({"messages":[{"role":"user","content":"A dog."}]})");
  Screen screen({"chat", "--device", "cpu", "-n", "3"}, "xterm");
  screen.resize(200);
  screen.until("> ");
  screen.type("/lo\t" + folder / "ta\to\t");
  screen.until("one.json  other.json");
  screen.type("n\t\r");  // not the keys and values beside it
  screen.until("1 message from " + folder / "talks/one.json");
  screen.until("> ");
  screen.type("/set rep\t\t");
  screen.until("repeat-penalty  repeat-last-n");
  screen.type("p\t1.25\r");
  screen.until("set here: repeat-penalty 1.25");
  screen.until("> ");
  screen.type("/think h\t\r");
  screen.until("thinking: hide");
  screen.until("> ");
  screen.type("/quit\t\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/run on a terminal: a long prompt says how far it is read, and leaves no trace") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "There was a dog. ";
  const std::string file = write_file(folder / "prompt", text);
  const auto run = [&](const Arguments& more) {
    Arguments all = {"run",   "-m", kStory, "--device", "cpu", "-t", "1", "-c",
                     "32768", "-f", file,   "-n",       "1",   "-s", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  Screen screen(run({}), "xterm"), quiet(run({"-q"}), "xterm"), json(run({"--json"}), "xterm"),
      dumb(run({}));
  screen.resize(100);
  screen.until("reading ");
  screen.until(" of 15002 tokens, ");
  for (Screen* each : {&quiet, &json, &dumb}) each->until_caught(SIGINT);
  for (Screen* each : {&screen, &quiet, &json, &dumb}) each->type(kCtrlC);
  CHECK(screen.until("of the prompt's 15002 tokens known; interrupted; seed 1\r\n")
            .find("\r\033[K") != std::string::npos);
  CHECK(json.until("\"prompt_tokens_per_second\":0").find("reading") == std::string::npos);
  CHECK(dumb.until("tokens known; interrupted; seed 1").find("reading") == std::string::npos);
  for (Screen* each : {&screen, &quiet, &json, &dumb}) CHECK(each->status() == 130);
  CHECK_MESSAGE(quiet.left().find("reading") == std::string::npos, quiet.left());
}

TEST_CASE("cli/chat on a terminal: a long question says how far it is read") {
  std::string question;
  for (int i = 0; i < 3000; ++i) question += "There was a dog. ";
  Screen screen({"chat", "--device", "cpu", "-t", "1", "-c", "32768", "-n", "1"}, "xterm");
  screen.resize(100);
  screen.until("> ");
  screen.type("\033[200~" + question + "\r.\033[201~\r");
  screen.until(" s left");
  screen.type(kCtrlC);
  screen.until(" are known; interrupted");
  screen.until("> ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  // Nobody types there: the answer's place stays empty, and a line says why.
  const TempFolder folder;
  write_file(folder / "question", question);
  Screen once({"chat", "--device", "cpu", "-t", "1", "-c", "32768", "-f", folder / "question"},
              "xterm");
  once.until(" s left");
  once.type(kCtrlC);
  once.until("note: interrupted before the\r\nanswer began: ");
  once.until(" of the prompt's ");
  CHECK(once.status() == 130);
}

TEST_CASE("cli/chat on a terminal: every command") {
  const TempFolder folder;
  const std::string talk = folder / "talk";
  Screen screen({"chat", "--device", "cpu", "-n", "6", "--seed", "1"}, "xterm", folder / "state");
  screen.resize(200);
  const std::vector<std::pair<std::string, std::string>> typed = {
      {"/help", "the same"},
      {"/?", "this list"},
      {"/nonsense", "is not a command"},
      {"/system Be brief.", "> "},
      {"/system", "Be brief."},
      {"A dog.", " of 512 tokens; "},
      {"/tokens", " of 512 tokens\r"},
      {"/stats", "1 answer; "},
      {"/show", "template: "},
      {"/set temp 0.5", "set here: temp 0.5"},
      {"/retry", " of 512 tokens; "},
      {"/copy", "copied to the terminal's clipboard"},
      {"/think", "the last answer has no thinking"},
      {"/think show", "thinking: show"},
      {"/save " + talk, " tokens in " + talk + ".kv, "},
      {"/undo", "removed: A dog."},
      {"/undo", "there is no question yet"},
      {"/load " + talk, " tokens from " + talk + ".kv"},
      {"/edit", "A dog."},
      {" A cat.", " of 512 tokens; "},  // behind what /edit suggested
      {"/clear", "> "},
      {"One\033\rtwo", " of 512 tokens; "},  // Alt-Enter
      {"/tokens", " of 512 tokens\r"}};
  std::vector<int> tokens;  // that the conversation had, each time it was said
  for (const auto& [keys, shown] : typed) {
    CAPTURE(keys);
    screen.type(keys + "\r");
    const std::string seen = screen.until(shown);
    if (const size_t end = seen.rfind(" of 512 tokens"); end != std::string::npos)
      tokens.push_back(std::stoi(seen.substr(seen.find_last_not_of("0123456789", end - 1) + 1)));
  }
  REQUIRE(tokens.size() >= 7);
  CHECK(tokens[0] == tokens[1]);  // behind the answer and by /tokens
  CHECK(tokens[tokens.size() - 2] == tokens[tokens.size() - 1]);
  screen.type("/save " + talk + "2\r");
  screen.until("3 messages in");
  screen.type("/bye\r");
  CHECK(screen.status() == 0);
  CHECK(screen.is_as_before());
  CHECK(said_in(talk, "user") == std::vector<std::string>{"A dog."});
  CHECK(said_in(talk + "2", "user") == std::vector<std::string>{"One\ntwo"});
  CHECK(said_in(talk, "system") == std::vector<std::string>{"Be brief."});
}

TEST_CASE("cli/chat on a terminal: other scripts, and windows that change their size") {
  const TempFolder folder;
  Screen screen(
      {"chat", "--device", "cpu", "-n", "200", "-c", "4096", "--ignore-end", "--seed", "1", "-v"},
      "xterm", folder / "state");
  // Wide characters, combining ones, an emoji of several code points, right to left.
  const std::string line =
      "\u65e5\u672c\u8a9e \u4f60\u597d e\u0301a\u0308 "
      "\U0001F469\u200D\U0001F680 \u05d0\u05d1 caf\u00e9 and so on to the end";
  screen.until("> ");
  for (size_t i = 0; i < line.size(); i += 5) {  // some keys of half a character
    screen.type(line.substr(i, 5));
    screen.resize(20 + int(i) % 60);
    wait_ms(3);
  }
  screen.type("\033[D\033[D\033[D\033[C\033[C\033[C\r");
  for (int i = 0; i < 40; ++i) {
    screen.resize(10 + i * 37 % 150);
    wait_ms(2);
  }
  screen.until("seed 1");
  screen.type("/save " + folder / "talk" + "\r");
  screen.until("2 messages in");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  CHECK(screen.is_as_before());
  const std::vector<std::string> said = said_in(folder / "talk", "user");
  CHECK_MESSAGE(said == std::vector<std::string>{line}, said.size(), " ", said.at(0));
}

// Read to the end, the question would have an answer of one token at least.
TEST_CASE(
    "cli/chat on a terminal: Ctrl-C leaves a question in the middle of a pass, and no trace") {
  const TempFolder folder;
  std::string question;
  for (int i = 0; i < 40; ++i) question += "There was a dog. ";
  std::vector<std::string> answers[2];
  for (const bool interrupted : {false, true}) {
    CAPTURE(interrupted);
    setenv("CHASKI_ISA", "scalar", 1);  // the long question is one pass, and a slow one
    Screen screen({"chat", "--device", "cpu", "-t", "1", "-c", "2048", "-n", "9", "--seed", "1"},
                  "xterm", folder / "state");
    unsetenv("CHASKI_ISA");
    screen.resize(200);
    screen.until("> ");
    screen.type("A dog.\r");
    screen.until(" of 2048 tokens; ");
    screen.until("> ");
    if (interrupted) {
      screen.type("\033[200~" + question + "and that is all.\033[201~");
      screen.until("that is all.");
      screen.type("\r");
      wait_ms(60);
      screen.type(kCtrlC);
      screen.until(" of 2048 tokens; ");
      screen.type("/save " + folder / "long" + "\r");
      screen.until("4 messages in");
      CHECK(said_in(folder / "long", "assistant").back().empty());
      screen.type("/undo\r");
      screen.until("removed: There was");
      screen.until("> ");
    }
    screen.type("A cat.\r");
    screen.until(" of 2048 tokens; ");
    const std::string talk = folder / (interrupted ? "two" : "one");
    screen.type("/save " + talk + "\r");
    screen.until("4 messages in");
    screen.type("/quit\r");
    CHECK(screen.status() == 0);
    answers[interrupted] = said_in(talk, "assistant");
  }
  CHECK(answers[0].back().size() > 10);
  CHECK(answers[0] == answers[1]);
}

TEST_CASE("cli/chat on a terminal: Ctrl-C at 200 moments, and twice at the prompt") {
  int left = 200;
  for (int ms = 0; ms < 24; ms += 2, --left) {  // while it starts
    CAPTURE(ms);
    Screen screen({"chat", "--device", "cpu"}, "xterm");
    wait_ms(ms);
    screen.type(kCtrlC);
    screen.type("/quit\r");
    const int status = screen.status();
    CHECK_MESSAGE((status == 130 || status == 0), status);
    CHECK(screen.is_as_before());
  }
  Screen screen(
      {"chat", "--device", "cpu", "-n", "300", "-c", "2048", "--ignore-end", "--seed", "1"},
      "xterm");
  screen.until("> ");
  std::string question;
  for (int i = 0; i < 100; ++i) question += "There was a dog. ";
  for (int i = 0; left > 0; ++i, left -= 2) {
    CAPTURE(i);
    const std::string mark = "/x" + std::to_string(i) + "_";
    screen.type((i % 4 == 0 ? question : "A dog.") + "\r");
    wait_ms(i * 7 % 30);
    screen.type(kCtrlC);
    wait_ms(15);
    screen.type("/clear\r" + mark + "\r");
    screen.until(mark + " is not a command");
    screen.type("half a li");
    wait_ms(i % 5);
    screen.type(kCtrlC);
    screen.until("^C");
    screen.type(mark + "y\r");
    screen.until(mark + "y is not a command");
  }
  screen.until("> ");
  wait_ms(50);
  screen.type(kCtrlC);
  screen.until("^C (again, /quit or Ctrl-D ends the chat)");
  screen.until("> ");
  screen.type(kCtrlC);
  CHECK(screen.status() == 0);
  CHECK(screen.is_as_before());
}

TEST_CASE("cli/chat on a terminal: Ctrl-Z and fg, beside a line and beside an answer") {
  setenv("CHASKI_ISA", "scalar", 1);
  Screen screen({"chat", "--device", "cpu", "-t", "1", "--ignore-end", "--seed", "1"}, "xterm");
  unsetenv("CHASKI_ISA");
  // A shell has the terminal meanwhile: it sets its own mode and marks no pastes.
  const auto stop_and_go = [&] {
    screen.signal(SIGSTOP);
    wait_ms(20);
    screen.to_first_mode();
    screen.signal(SIGCONT);
    wait_ms(50);
  };
  screen.until("\033[?2004h");
  screen.until("> ");
  screen.type("A dog");
  screen.until("A dog");
  stop_and_go();
  screen.until("\033[?2004h");
  screen.until("A dog");
  CHECK_FALSE(screen.is_as_before());
  screen.type(" ran.\r");
  screen.until(400);
  stop_and_go();
  screen.until(100);
  CHECK_FALSE(screen.is_as_before());
  screen.type("never echoed");
  screen.type(kCtrlC);
  const std::string answer = screen.until("of 512 tokens; ");
  CHECK_MESSAGE(answer.find("never echoed") == std::string::npos, answer);
  screen.until(" tok/s; interrupted");
  screen.until("never echoed");
  screen.type(kCtrlC);
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  CHECK(screen.is_as_before());
}

TEST_CASE("cli/chat on a terminal: a wrapped line is drawn anew when something is put into it") {
  Screen screen({"chat", "--device", "cpu", "-n", "3"}, "xterm");
  screen.until("> ");
  std::string line;
  for (int i = 10; i < 30; ++i) line += std::to_string(i) + " ";
  screen.type(line);
  screen.until("29");
  screen.type("\x01");  // Ctrl-A: to its beginning
  wait_ms(100);
  screen.type("X");
  screen.until("X10 11 12 13");
  screen.type(kCtrlC);
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}
