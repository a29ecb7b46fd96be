// Editing messages in chaski chat on a terminal: several lines, $EDITOR, history and pastes.
#include "engine/machine/cache_folder.h"
#include "tests/cli/screen.h"

using namespace chaski::test;

namespace {

Arguments chat() {
  return {"chat", "--device", "cpu", "-m", kStory, "-n", "3", "-c", "4096", "--seed", "1"};
}

// Waits for the answer and for the next prompt.
void answered(Screen& screen) {
  screen.until(" of 4096 tokens; ");
  screen.until("> ");
}

std::vector<std::string> questions(Screen& screen, const std::string& file) {
  screen.type("/save " + file + "\r");
  screen.until(" in " + file);
  screen.until("> ");
  return said_in(file, "user");
}

// A text editor for tests.
std::string editor(const TempFolder& folder, const std::string& script) {
  return "sh " + write_file(folder / "editor.sh", script);
}

}  // namespace

TEST_CASE("cli/chat on a terminal: /edit here changes any line of a message") {
  const TempFolder folder;
  Screen screen(chat(), "xterm", folder / "state");
  screen.resize(100);
  screen.until("> ");
  screen.type(std::string("one") + kAltEnter + "two tabs\\\r" + "three\r");
  answered(screen);
  CHECK(questions(screen, folder / "a") == std::vector<std::string>{"one\ntwo tabs\nthree"});
  screen.type("/edit here\r");
  screen.until("three");
  wait_ms(100);
  // The cursor is after "three": to the first line, its start and its end.
  screen.type(std::string(kKeyUp) + kKeyUp + "\x01" + "At \x05!" + kKeyDown + "?\r");
  answered(screen);
  CHECK(questions(screen, folder / "b") == std::vector<std::string>{"At one!\ntwo tab?s\nthree"});
  // Ctrl-C leaves question and answer.
  screen.type("/edit here\r");
  screen.until("three");
  screen.type(kCtrlC);
  screen.until("^C");
  CHECK(questions(screen, folder / "c").size() == 1);
  // A question that is longer than the screen.
  std::string lines = "first";
  for (int i = 0; i < 50; ++i) lines += std::string(kAltEnter) + "x";
  screen.type(lines + "\r");
  answered(screen);
  screen.type("/edit here\r");
  screen.until("the question is longer than the screen, which shows its end");
  wait_ms(100);
  for (int i = 0; i < 50; ++i) screen.type(kKeyUp);
  screen.type("\x05!\r");
  answered(screen);
  CHECK(questions(screen, folder / "d").back().starts_with("first!\nx\nx"));
  screen.type("/edit there\r");
  screen.until("/edit expects here, editor or nothing, found \"there\"");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  CHECK(screen.is_as_before());
}

TEST_CASE("cli/chat on a terminal: a message between two \"\"\" can be edited until Enter") {
  const TempFolder folder;
  Screen screen(chat(), "xterm", folder / "state");
  screen.resize(100);
  screen.until("> ");
  screen.type("\"\"\"\r/quit\rtwo\r\"\"\"");
  screen.type(std::string(kKeyUp) + kKeyUp + "\x01x\x05" + kAltEnter + "\r");
  answered(screen);
  CHECK(questions(screen, folder / "a") == std::vector<std::string>{"x/quit\n\ntwo"});
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: /edit opens $EDITOR for a message of several lines") {
  const TempFolder folder;
  const OwnVariable unset("VISUAL", ""),
      own("EDITOR", editor(folder, "printf 'three\\n\\n' >> \"$1\"; stat -c %a \"$1\" > " +
                                       folder / "mode" + "; echo \"$1\" > " + folder / "name"));
  Screen screen(chat(), "xterm", folder / "state");
  screen.resize(100);
  screen.until("> ");
  screen.type(std::string("one") + kAltEnter + "two\r");
  answered(screen);
  screen.type("/edit\r");
  screen.until("> one");
  screen.until("three");
  answered(screen);
  CHECK(questions(screen, folder / "a") == std::vector<std::string>{"one\ntwo\nthree"});
  CHECK(read_file(folder / "mode") == "600\n");
  std::string name = read_file(folder / "name");
  name.pop_back();
  CHECK_FALSE(have(name));
  // The edited message is in the history; a message of one line is edited here.
  screen.type(std::string(kKeyUp) + kKeyUp + "\r");
  answered(screen);
  CHECK(questions(screen, folder / "b").back() == "one\ntwo\nthree");
  screen.type("short\r");
  answered(screen);
  screen.type("/edit\r");
  screen.until("short");
  screen.type("er\r");
  answered(screen);
  CHECK(questions(screen, folder / "c").back() == "shorter");
  screen.type("/edit editor\r");
  screen.until("three");
  answered(screen);
  CHECK(questions(screen, folder / "d").back() == "shorter\nthree");

  // An editor that fails, changes nothing, or leaves nothing.
  for (const auto& [script, shown] : std::vector<std::pair<std::string, std::string>>{
           {"exit 3", "ended with status 3, so nothing is changed"},
           {"exit 0", "the question is unchanged: its answer stays"},
           {": > \"$1\"", "the new question is empty: the old one and its answer stay"}}) {
    editor(folder, script);
    screen.type("/edit\r");
    screen.until(shown);
    screen.until("> ");
  }
  CHECK(said_in(folder / "d", "user") == questions(screen, folder / "e"));
  // A text that would be a command at the prompt.
  editor(folder, "echo /quit > \"$1\"");
  screen.type("/edit editor\r");
  answered(screen);
  screen.type(kKeyUp + std::string("\r"));
  answered(screen);
  CHECK(questions(screen, folder / "f").back() == "/quit");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  CHECK(screen.is_as_before());
}

TEST_CASE("cli/chat on a terminal: /edit editor without an editor says what is missing") {
  const OwnVariable visual("VISUAL", ""), editor("EDITOR", "");
  Screen screen(chat(), "xterm");
  screen.resize(200);
  screen.until("> ");
  screen.type("A dog.\r");
  answered(screen);
  screen.type("/edit editor\r");
  screen.until("no text editor is set, expected its name in the variable VISUAL or EDITOR");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: the history has whole messages and pastes, in later chats too") {
  const TempFolder folder;
  const std::string lines = "first [paste\r\tsecond \\\x10n\rthird",
                    expected = "see first [paste\n\tsecond \\\x10n\nthird!";
  {
    Screen screen(chat(), "xterm", folder / "state");
    screen.resize(100);
    screen.until("> ");
    screen.type("see " + std::string(kPaste) + lines + kPasted + "!\r");
    answered(screen);
    screen.type(std::string("un") + kAltEnter + "deux\r");
    answered(screen);
    screen.type(std::string(kKeyUp) + kKeyUp +
                kKeyUp);  // the last message, its first line, the one before
    screen.until("see [paste 1: 3 lines]!");
    screen.type("\r");
    answered(screen);
    CHECK(questions(screen, folder / "a") ==
          std::vector<std::string>{expected, "un\ndeux", expected});
    screen.type("/quit\r");
    CHECK(screen.status() == 0);
  }
  Screen screen(chat(), "xterm", folder / "state");
  screen.resize(100);
  screen.until("> ");
  screen.type(std::string(kKeyUp) + kKeyUp + kKeyUp);  // /quit, /save, the paste
  screen.until("see [earlier paste 2: 3 lines]!");
  screen.type("\r");
  answered(screen);
  screen.type(std::string(kKeyUp) + kKeyUp + kKeyUp + kKeyUp +
              kKeyUp);  // three from above, the paste, un deux
  screen.until("deux");
  screen.type("\r");
  answered(screen);
  CHECK(questions(screen, folder / "b") == std::vector<std::string>{expected, "un\ndeux"});
  // A paste of this chat has its own number.
  screen.type(kPaste + lines + kPasted);
  screen.until("[paste 1: 3 lines]");
  screen.type("\b\r");
  screen.until("a part of [paste 1: 3 lines] was deleted: delete the rest of it, or paste again");
  screen.until("[paste 1: 3 lines");  // the line is still there
  screen.type("]\r");
  answered(screen);
  CHECK(questions(screen, folder / "c").size() == 3);
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: Ctrl-C drops a paste that is being read, and nothing else") {
  const TempFolder folder;
  std::string half;
  for (int i = 0; i < 30; ++i) half += "line " + std::to_string(i) + "\r";
  Screen screen(chat(), "xterm", folder / "state");
  screen.resize(100);
  screen.until("> ");
  // The rest of the paste and the next question arrive after Ctrl-C.
  screen.type("see " + std::string(kPaste) + half);
  wait_ms(50);
  screen.type(kCtrlC);
  wait_ms(50);
  screen.type(half + half);
  screen.type(half + kPasted + "A dog.\r");
  screen.until("^C: the paste is dropped after ");
  answered(screen);
  CHECK(questions(screen, folder / "a") == std::vector<std::string>{"A dog."});
  // The terminal has dropped the mark of the paste's end.
  screen.type(kPaste + half);
  wait_ms(50);
  screen.type(kCtrlC);
  screen.until("^C: the paste is dropped after ");
  screen.until("> ");
  screen.type("A cat.\r");
  answered(screen);
  CHECK(questions(screen, folder / "b") == std::vector<std::string>{"A dog.", "A cat."});
  // The same, and another paste follows at once.
  screen.type(kPaste + half);
  wait_ms(50);
  screen.type(kCtrlC + std::string(kPaste) + "A bird." + kPasted + "\r");
  screen.until("^C: the paste is dropped after ");
  answered(screen);
  CHECK(questions(screen, folder / "c") == std::vector<std::string>{"A dog.", "A cat.", "A bird."});
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  CHECK(screen.is_as_before());
}

TEST_CASE("cli/chat on a terminal: a byte that is not UTF-8 takes no other text with it") {
  const TempFolder folder;
  Screen screen(chat(), "xterm", folder / "state");
  screen.resize(200);
  screen.until("> ");
  // Typed: alone, as the beginning of a character, and before an arrow key.
  screen.type("A caf\xe9 on \xe2\x82the hill\xe9\033[D.\r");
  screen.until("note: the line is not UTF-8: byte \\xe9 is replaced by U+FFFD; is it Latin-1?");
  answered(screen);
  CHECK(questions(screen, folder / "a") ==
        std::vector<std::string>{"A caf\ufffd on \ufffdthe hill.\ufffd"});
  // A paste is kept as it is.
  screen.type(std::string("see ") + kPaste + "a caf\xe9 here" + kPasted + " now\r");
  screen.until("see [paste 1: 11 bytes] now");
  screen.until(
      "note: the question is not UTF-8: the byte at offset 9 is \\xe9, which the tokenizer keeps");
  answered(screen);
  CHECK(questions(screen, folder / "b").back() == "see a caf\ufffd here now");
  screen.type("/edit here\r");
  screen.until("see a caf\ufffd here now");
  screen.type("!\r");
  screen.until("note: the line is not UTF-8");
  answered(screen);
  CHECK(questions(screen, folder / "c").back() == "see a caf\ufffd here now!");
  // No note if the byte was deleted before Enter.
  screen.type("A caf\xe9\be.\r");
  const std::string shown = screen.until(" of 4096 tokens; ");
  CHECK_MESSAGE(shown.find("is not UTF-8") == std::string::npos, shown);
  screen.until("> ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat: the history file keeps the newest messages, at most 16 MB") {
  const TempFolder folder;
  const std::string path = folder / "history";
  std::vector<std::string> lines;
  for (char c = 'a'; c < 'a' + 20; ++c) lines.emplace_back((1 << 20) - 1, c);
  for (const std::string& line : lines) chaski::add_line(path, line);
  chaski::shorten_lines(path, 1000);
  const std::vector<std::string> kept = chaski::kept_lines(path);
  REQUIRE(kept.size() == 16);
  CHECK(kept == std::vector<std::string>(lines.begin() + 4, lines.end()));
}
