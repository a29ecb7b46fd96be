// Typing in chaski chat: Ctrl-C, pastes, history and line breaks.
#include "tests/cli/screen.h"

using namespace chaski::test;

TEST_CASE("cli/chat on a terminal: Ctrl-C stops the answer or drops the line, never the program") {
  setenv("CHASKI_ISA", "scalar", 1);  // slow: an answer takes seconds
  Screen screen({"chat", "--device", "cpu", "-t", "1", "--ignore-end", "--seed", "1", "-v"});
  unsetenv("CHASKI_ISA");
  screen.until("> ");
  screen.type("Tell me a story.\r");
  screen.until(200);  // more than the echo of the question, which may appear twice
  screen.type(kCtrlC);
  const std::string answer = screen.until("> ");
  CHECK_MESSAGE(answer.find("the context of") == std::string::npos, answer);
  CHECK_MESSAGE(answer.find("prompt ") != std::string::npos, answer);  // the closing line is there
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

TEST_CASE("cli/chat -p: Ctrl-C ends it with 130, and a note says that the answer is cut") {
  Screen screen({"chat", "--device", "cpu", "-c", "4096", "-n", "4000", "--ignore-end", "--seed",
                 "1", "-p", "A"},
                "xterm");
  screen.resize(200);
  screen.until("fireman");
  screen.type(kCtrlC);
  screen.until("note: the answer is interrupted after ");
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

TEST_CASE("cli/chat on a terminal: a paste with CR LF has as many lines as one with CR") {
  const TempFolder folder;
  Screen screen({"chat", "--device", "cpu", "-n", "3", "-c", "512", "--seed", "1"});
  screen.until("> ");
  screen.type("\033[200~one\r\n\r\ntwo\r\n\033[201~");
  screen.until("[paste 1: 3 lines]");
  screen.type("\r");
  screen.until(" of 512 tokens; ");
  screen.until("> ");
  screen.type("/save " + folder / "talk" + "\r");
  screen.until(" in ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  CHECK(said_in(folder / "talk", "user") == std::vector<std::string>{"one\n\ntwo"});
}

TEST_CASE("cli/chat on a terminal: text typed during an answer waits for the next line") {
  const TempFolder folder;
  Screen screen({"chat", "--device", "cpu", "-t", "1", "-n", "800", "-c", "8192", "--ignore-end",
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

TEST_CASE(
    "cli/chat on a terminal: Ctrl-C stops an answer when more text is typed than the system "
    "holds") {
  setenv("CHASKI_ISA", "scalar", 1);  // slow, so that the answer does not end by itself
  Screen screen({"chat", "--device", "cpu", "-t", "1", "-n", "6000", "-c", "8192", "--ignore-end",
                 "--seed", "1"},
                "xterm");
  unsetenv("CHASKI_ISA");
  std::string pasted;
  for (int i = 1; i <= 300; ++i) pasted += "more than the system holds " + std::to_string(i) + "\r";
  screen.until("> ");
  screen.type("Tell me a story.\r");
  screen.until("story.");
  screen.until(100);  // of the answer
  screen.type("\033[200~" + pasted + "\033[201~");
  screen.type(kCtrlC);
  screen.until("; interrupted");
  screen.until("[paste 1: 300 lines]");
  screen.type(kCtrlC);
  screen.until("> ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: Ctrl-C keeps typed text, /save does not overwrite a model") {
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

TEST_CASE("cli/chat on a terminal: bracketed paste is on only while a line is typed") {
  Screen screen({"chat", "--device", "cpu", "-n", "3"}, "xterm");
  screen.until("\033[?2004h");
  screen.until("> ");
  screen.type("\033[D/quit\r");  // an escape that is no paste
  screen.until("\033[?2004l");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: the history has the lines of earlier chats") {
  const TempFolder folder;
  const auto chat = [&] { return Arguments{"chat", "--device", "cpu", "-n", "3", "--seed", "1"}; };
  constexpr const char* kUp = "\033[A";
  const std::string history = folder / "state/chaski/history";
  {
    Screen screen(chat(), "xterm", folder / "state");
    screen.until("> ");
    screen.type("/sa\t" + folder / "one" + "\r");  // Tab: "/save "
    screen.until("0 messages in " + folder / "one");
    screen.until("> ");
    screen.type("Tell me of a cat.\r");
    screen.until(" of 512 tokens; ");
    screen.until("> ");
    CHECK(read_file(history).find("Tell me of a cat.\n") != std::string::npos);  // already
    screen.type("/edit\r");
    screen.until("Tell me of a cat.");
    screen.type("\b\b\b\bdog.\r");
    screen.until(" of 512 tokens; ");
    screen.until("> ");
    screen.type("/quit\r");
    CHECK(screen.status() == 0);
  }
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

TEST_CASE(
    "cli/chat on a terminal: words are not broken in 40 columns, except with --no-word-wrap") {
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
