// /undo, /retry and /edit of chaski chat on a terminal, and messages whose answer does not begin.
#include "tests/cli/screen.h"

using namespace chaski::test;

TEST_CASE("cli/chat on a terminal: Ctrl-C before the answer of /retry keeps the earlier answer") {
  const TempFolder folder;
  std::string question;
  for (int i = 0; i < 40; ++i) question += "There was a dog. ";
  setenv("CHASKI_ISA", "scalar", 1);  // the question is one pass, and a slow one
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-t", "1", "-c", "2048", "-n", "500",
                 "--ignore-end", "--seed", "1"},
                "xterm");
  unsetenv("CHASKI_ISA");
  screen.resize(200);
  const auto saved = [&](const char* name) {
    screen.type_at_prompt("/save " + folder / name + "\r", " messages in");
    nlohmann::json all = nlohmann::json::parse(read_file(folder / name));
    return std::pair(all["messages"], all.value("set", nlohmann::json()));
  };
  screen.type_at_prompt("/set tokens 5\r", "tokens 5");
  screen.type_at_prompt("\033[200~" + question + "\r.\033[201~\r", " of 2048 tokens; ");
  screen.type_at_prompt("/system Be brief.\r", "the system message is set");  // all is read again
  const auto first = saved("first");
  screen.type_at_prompt("/retry\r", "");
  screen.until_typing_is_held();
  screen.type(kCtrlC);
  screen.until("stopped before the answer began: the conversation is as it was before /retry");
  CHECK(saved("back") == first);
  screen.type_at_prompt("/retry\r", " of 2048 tokens; ");
  CHECK(saved("other").first != first.first);
  // Later, the beginning of the new answer replaces the earlier one.
  screen.type_at_prompt("/set tokens 500\r", "tokens 500");
  screen.type_at_prompt("/retry\r", "");
  screen.until(400);
  screen.type(kCtrlC);
  screen.until("the beginning of this answer replaces the earlier answer");
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: after /undo, Up gives the removed question without its files") {
  const TempFolder folder;
  const std::string file = write_file(folder / "file", "A bird."), talk = folder / "talk";
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-n", "3"}, "xterm");
  screen.resize(200);
  screen.type_at_prompt("/file " + file + "\r", "sent with the next message");
  screen.type_at_prompt("A cat.\r", " of 512 tokens; ");
  screen.type_at_prompt("/undo\r", "removed: A cat. and 3 more lines");
  screen.until(file + " is sent with the next message");
  screen.type_at_prompt("\033[A", "A cat.");
  screen.type("!\r");
  screen.until(" of 512 tokens; ");
  screen.type_at_prompt("/save " + talk + "\r", "2 messages in");
  CHECK(said_in(talk, "user") == std::vector<std::string>{"A cat.!\n\n" + file + ":\nA bird."});
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: Ctrl-C before the answer of /edit keeps the earlier question") {
  const TempFolder folder;
  std::string question;
  for (int i = 0; i < 40; ++i) question += "There was a dog. ";
  setenv("CHASKI_ISA", "scalar", 1);  // the question is one pass, and a slow one
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-t", "1", "-c", "2048", "-n", "5"},
                "xterm");
  unsetenv("CHASKI_ISA");
  screen.resize(200);
  const auto saved = [&](const char* name) {
    screen.type_at_prompt("/save " + folder / name + "\r", "2 messages in");
    return nlohmann::json::parse(read_file(folder / name));
  };
  screen.type_at_prompt("A cat.\r", " of 2048 tokens; ");
  const nlohmann::json first = saved("first");
  screen.type_at_prompt("/edit\r", "A cat.");
  screen.type("\x15\033[200~" + question + "\r.\033[201~\r");
  screen.until_typing_is_held();
  screen.type(kCtrlC);
  screen.until(
      "stopped before the answer began: the conversation is as it was before /edit, and Up brings "
      "the new question back");
  CHECK(saved("back") == first);
  screen.type_at_prompt("\033[A\033[A", "[paste 1: 2 lines]");  // the line before /save
  screen.type(kCtrlC);
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: a question that is too long leaves the files of the last one") {
  const TempFolder folder;
  std::string question;
  for (int i = 0; i < 400; ++i) question += "A dog ran. ";
  const std::string file = write_file(folder / "file", "A bird."), talk = folder / "talk";
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-n", "3"}, "xterm");
  screen.resize(300);
  screen.type_at_prompt("/file " + file + "\r", "sent with the next message");
  screen.type_at_prompt("A cat.\r", " of 512 tokens; ");
  screen.type_at_prompt("\033[200~" + question + "\033[201~\r",
                        "the question is removed, and Up brings it back");
  screen.type_at_prompt("/undo\r", "removed: A cat. and 3 more lines");
  screen.until(file + " is sent with the next message");
  screen.type_at_prompt("\033[A", "A cat.");
  screen.type("!\r");
  screen.until(" of 512 tokens; ");
  screen.type_at_prompt("/save " + talk + "\r", "2 messages in");
  CHECK(said_in(talk, "user") == std::vector<std::string>{"A cat.!\n\n" + file + ":\nA bird."});
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: a question that alone is too long, and what became of it") {
  std::string question;
  for (int i = 0; i < 100; ++i) question += "A dog ran. ";
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-n", "3", "-c", "128",
                 "--context-policy", "shift"},
                "xterm");
  screen.resize(250);
  screen.type_at_prompt(question + "\r",
                        "this message alone does not fit into the context of 128 tokens, expected "
                        "a shorter one or a larger --ctx; the question is removed, and Up");
  screen.type_at_prompt("A cat.\r", " of 128 tokens; ");
  screen.type_at_prompt("/edit\r", "A cat.");
  screen.type(" " + question + "\r");
  screen.until("larger --ctx; the conversation is as it was before /edit, and Up brings the new");
  screen.type_at_prompt("/undo\r", "removed: A cat.");
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: after /undo, Up gives the line as it was typed or pasted") {
  const TempFolder folder;
  std::string pasted, message;
  for (int i = 0; i < 60; ++i) {
    pasted += (i > 0 ? "\rline " : "line ") + std::to_string(i);
    message += (i > 0 ? "\nline " : "line ") + std::to_string(i);
  }
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-n", "3", "-c", "4096"}, "xterm",
                folder / "state");
  screen.resize(200);
  const auto said = [&](const std::string& name) {
    screen.type_at_prompt("/save " + folder / name + "\r", "2 messages in");
    return said_in(folder / name, "user").at(0);
  };
  int number = 0;
  for (const auto& [typed, text] : std::vector<std::pair<std::string, std::string>>{
           {"\"\"\"\r/quit\r\"\"\"", "/quit"},
           {"\"\"\"\r/help me with this\r\"\"\"", "/help me with this"},
           {"\"\"\"\rpath C:\\\r\"\"\"", "path C:\\"},
           {std::string(kPaste) + "\"\"\"doc\"\"\"\rdef f(): pass" + kPasted,
            "\"\"\"doc\"\"\"\ndef f(): pass"},
           {kPaste + pasted + kPasted, message},
           {std::string(kPaste) + "a caf\xe9 here" + kPasted, "a caf\ufffd here"}}) {
    const std::string name = std::to_string(++number);
    screen.type_at_prompt(typed + "\r", " of 4096 tokens; ");
    CHECK(said(name) == text);
    screen.type_at_prompt("/undo\r", "removed: ");
    screen.type_at_prompt(kKeyUp + std::string("\r"), " of 4096 tokens; ");
    CHECK(said(name + "again") == text);
    screen.type_at_prompt("/undo\r", "removed: ");
  }
  // The paste has kept its bytes.
  screen.type_at_prompt(kKeyUp, "[paste 3: 11 bytes]");
  screen.type("\r");
  screen.until(
      "note: the question is not UTF-8: the byte at offset 5 is \\xe9, which the tokenizer keeps");
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
  // The history file has a message as often as it was sent.
  const std::string history = read_file(folder / "state/chaski/history");
  size_t times = 0;
  for (size_t at = 0; (at = history.find("line 59", at)) != std::string::npos; ++at) ++times;
  CHECK(times == 2);
}

TEST_CASE("cli/chat on a terminal: after two /undo, Up gives the first line without its file") {
  const TempFolder folder;
  const std::string file = write_file(folder / "file", "A bird."), talk = folder / "talk";
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-n", "3"}, "xterm");
  screen.resize(200);
  screen.type_at_prompt("/file " + file + "\r", "sent with the next message");
  screen.type_at_prompt("A cat.\r", " of 512 tokens; ");
  screen.type_at_prompt("A dog.\r", " of 512 tokens; ");
  screen.type_at_prompt("/undo\r", "removed: A dog.");
  screen.type_at_prompt("/undo\r", "removed: A cat. and 3 more lines");
  screen.until(file + " is sent with the next message");
  screen.type_at_prompt(kKeyUp, "A cat.");
  screen.type("!\r");
  screen.until(" of 512 tokens; ");
  screen.type_at_prompt("/save " + talk + "\r", "2 messages in");
  CHECK(said_in(talk, "user") == std::vector<std::string>{"A cat.!\n\n" + file + ":\nA bird."});
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat on a terminal: /undo of a loaded question writes no control character") {
  const TempFolder folder;
  const std::string text = std::string("red \033[31m, bell \a,\rback, zero ") + '\0' + " end",
                    talk = folder / "talk";
  write_file(talk, nlohmann::json{{"messages",
                                   {{{"role", "user"}, {"content", text}},
                                    {{"role", "assistant"}, {"content", "Yes."}}}}}
                       .dump());
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-n", "3", "--resume", talk}, "xterm",
                folder / "state");
  screen.resize(200);
  screen.type_at_prompt("/undo\r", "removed: red");
  screen.type_at_prompt(kKeyUp, "[paste 1: 35 bytes]");
  screen.type("\r");
  screen.until(" of 512 tokens; ");
  screen.type_at_prompt("/save " + talk + "2\r", "2 messages in");
  CHECK(said_in(talk + "2", "user") == std::vector<std::string>{text});
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
}
