// chaski chat in a terminal: completion, progress, all commands, resizing, Ctrl-C and Ctrl-Z.
#include "ggml-like-tensor/file/quipu.h"
#include "tests/cli/screen.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// The bundled model with its output weights apart, and with embeddings that are no numbers for the
// 16 tokens from `first` on: a pass over one of them ends with an error.
void write_model_without(int64_t first, const std::string& path) {
  ModelSource source = source_of(open_quipu(kStory));
  const auto embedding = std::ranges::find(source.tensors, "token_embd",
                                           [](const TensorSource& t) { return t.info.name; });
  REQUIRE(embedding != source.tensors.end());
  TensorSource output = *embedding;
  output.info.name = "output";
  const uint64_t bytes = strip_bytes(output.info.format, output.info.cols);
  embedding->read = [read = output.read, first, bytes](int64_t begin, int64_t end, std::byte* to) {
    read(begin, end, to);
    if (const int64_t at = first / 16; begin <= at && at < end)
      std::memset(to + uint64_t(at - begin) * bytes, 0xff, bytes);
  };
  source.tensors.push_back(output);
  write_quipu(path, source, 1);
}

}  // namespace

TEST_CASE("cli/chat on a terminal: Tab lists the commands that match") {
  Screen screen({"chat", "--device", "cpu", "-n", "3"}, "xterm");
  screen.resize(100);
  screen.until("> ");
  screen.type("/s\t");
  screen.until("/system  /save  /set  /show  /stats");
  screen.until("/s");    // the line is drawn again
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
  screen.type("n\t\r");  // the KV cache file is not offered
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

TEST_CASE("cli/run on a terminal: a long prompt shows its progress, and the line is removed") {
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

TEST_CASE("cli/chat on a terminal: a long question shows its progress") {
  std::string question;
  for (int i = 0; i < 3000; ++i) question += "There was a dog. ";
  Screen screen({"chat", "--device", "cpu", "-t", "1", "-c", "32768", "-n", "1"}, "xterm");
  screen.resize(100);
  screen.until("> ");
  screen.type("\033[200~" + question + "\r.\033[201~\r");
  screen.until(" s left");
  screen.type(kCtrlC);
  screen.until("the question is removed, and Up brings it back");
  screen.until("; interrupted; ");
  screen.until(" tokens were read");
  screen.until("> ");
  screen.type("/undo\r");
  screen.until("there is no question yet");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  // Not interactive: there is no answer, and a line says why.
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
      {" A cat.", " of 512 tokens; "},  // appended to the text that /edit suggested
      {"/clear", "> "},
      {"One\033\rtwo", " of 512 tokens; "},  // Alt-Enter
      {"/tokens", " of 512 tokens\r"}};
  std::vector<int> tokens;  // how many the conversation has, each time chaski printed it
  for (const auto& [keys, shown] : typed) {
    CAPTURE(keys);
    screen.type(keys + "\r");
    const std::string seen = screen.until(shown);
    if (const size_t end = seen.rfind(" of 512 tokens"); end != std::string::npos)
      tokens.push_back(std::stoi(seen.substr(seen.find_last_not_of("0123456789", end - 1) + 1)));
  }
  REQUIRE(tokens.size() >= 7);
  CHECK(tokens[0] == tokens[1]);  // after the answer and by /tokens
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

TEST_CASE("cli/chat on a terminal: other scripts, and a window that changes its size") {
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

// If the whole question was read, the answer would have at least one token.
TEST_CASE("cli/chat on a terminal: Ctrl-C in the middle of a pass changes no later answer") {
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
      screen.until("the question is removed, and Up brings it back");
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

TEST_CASE("cli/chat on a terminal: an error in the middle of an answer, and before it") {
  const TempFolder folder;
  const std::string model = folder / "bad.quipu", talk = folder / "talk";
  write_model_without(1328, model);  // " world" is one of these tokens
  const Arguments chat = {"chat", "-m",     model, "--device", "cpu", "-n",
                          "40",   "--temp", "0",   "--draft",  "none"};
  Screen screen(chat);
  screen.until("> ");
  screen.type("A dog.\r");
  const std::string answer = screen.until("are not finite");
  CHECK_MESSAGE(answer.find("I want to see the world\r\nchaski: error: ") != std::string::npos,
                answer);
  screen.until("the answer stops here and is kept; /retry generates another one, /undo removes it");
  screen.until("> ");
  // The question and the beginning of its answer are in the conversation, and saved with it.
  screen.type("/save " + talk + "\r");
  screen.until("2 messages in");
  const std::vector<std::string> begun = said_in(talk, "assistant");
  CHECK(begun == std::vector<std::string>{" \"I want to go to the park. I want to see the world"});
  screen.until("> ");
  // Without the tokens that fail, the chat continues.
  screen.type("/undo\r");
  screen.until("removed: A dog.");
  screen.until("> ");
  screen.type("The world.\r");
  screen.until("there is no answer: the question is removed, and Up brings it back");
  screen.until("> ");
  screen.type("A cat.\r");
  screen.until("ended by -n");
  screen.until("> ");
  screen.type("/save " + folder / "cat" + "\r");
  screen.until("2 messages in");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  const Outcome alone = chaski_run({"chat", "-q", "-m", model, "--device", "cpu", "-n", "40",
                                    "--temp", "0", "--draft", "none", "-p", "A cat."});
  CHECK(alone.out == said_in(folder / "cat", "assistant")[0] + "\n");

  Screen run({"run", "-m", model, "--device", "cpu", "--temp", "0", "--draft", "none", "-p",
              "User: A dog.\n\nAssistant:"});
  run.until("world\r\nchaski: error: ");
  CHECK(run.status() == 8);
  Arguments once = {"chat",   "-q", "-m",      model,  "--device", "cpu",
                    "--temp", "0",  "--draft", "none", "-p",       "A dog."};
  const Outcome piped = chaski_run(once);
  CHECK(piped.status == 8);
  CHECK(piped.out == " \"I want to go to the park. I want to see the world\n");
  // As JSON, the beginning has the finish "error".
  const auto check_begun = [](const Outcome& outcome, const std::string& text) {
    CHECK(outcome.status == 8);
    CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
    const auto json = nlohmann::json::parse(last_line(outcome.out));
    CHECK(json["text"] == text);
    CHECK(json["finish"] == "error");
    CHECK(json["complete"] == false);
    CHECK(json["prompt_tokens"] > 1);
    CHECK(json["answer_tokens"] > 5);
    CHECK(json["answer_tokens"] == json["answer_ids"].size());
    return json;
  };
  const std::string beginning = begun[0];
  once.push_back("--json");
  CHECK(check_begun(chaski_run(once), beginning)["tool_calls"] == nlohmann::json::array());
  once.back() = "--jsonl";
  CHECK(check_begun(chaski_run(once), beginning)["event"] == "result");
  const auto completed = [&](const char* prompt) {
    return chaski_run({"run", "-q", "-m", model, "--device", "cpu", "--temp", "0", "--draft",
                       "none", "-p", prompt, "--json"});
  };
  CHECK(check_begun(completed("User: A dog.\n\nAssistant:"), beginning)["answer"] == 1);
  check_one_line(completed("The world."), 8, "are not finite");

  Arguments resumed = chat;
  resumed.insert(resumed.end(), {"--resume", talk});
  Screen again(resumed);
  again.until("I want to see the world");
  again.until("> ");
  again.type("/retry\r");
  again.until("the answer stops here and is kept");
  again.type("/quit\r");
  CHECK(again.status() == 0);
}

TEST_CASE("cli/chat on a terminal: an error before the second answer leaves the first one") {
  const TempFolder folder;
  const std::string model = folder / "bad.quipu", talk = folder / "talk",
                    file = write_file(folder / "file", "A bird.");
  write_model_without(1328, model);
  const Arguments chat = {"chat", "-m",     model, "--device", "cpu", "-n",
                          "20",   "--temp", "0",   "--draft",  "none"};
  Screen screen(chat, "xterm");
  screen.resize(200);
  const std::string removed = "there is no answer: the question is removed, and Up brings it back";
  screen.type_at_prompt("A cat.\r", "ended by -n");
  screen.type_at_prompt("/file " + file + "\r", "sent with the next message");
  screen.type_at_prompt("The world.\r", removed);
  screen.until(file + " is sent with the next message");
  screen.type_at_prompt("\033[A", "The world.");
  screen.type(kCtrlC);
  screen.type_at_prompt("/save " + talk + "\r", "2 messages in");
  CHECK(said_in(talk, "user") == std::vector<std::string>{"A cat."});
  // After /retry and /edit the earlier question and its answer come back.
  screen.type_at_prompt("/edit\r", "A cat.");
  screen.type("\x15The world.\r");
  screen.until(
      "there is no answer: the conversation is as it was before /edit, and Up brings the new");
  screen.type_at_prompt("/save " + talk + "\r", "2 messages in");
  screen.type_at_prompt("/system The world.\r", "the system message is set");
  screen.type_at_prompt("/retry\r",
                        "there is no answer: the conversation is as it was before /retry");
  screen.type_at_prompt("/save " + folder / "retried" + "\r", "3 messages in");
  CHECK(said_in(folder / "retried", "user") == std::vector<std::string>{"A cat."});
  CHECK(said_in(folder / "retried", "assistant") == said_in(talk, "assistant"));
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
  // A standard output that is no terminal gets nothing if an answer fails before its first token.
  Arguments once = chat;
  once.insert(once.end(), {"-q", "--resume", talk, "-p", "The world."});
  check_one_line(chaski_run(once), 8, "are not finite");
  once.push_back("--json");
  check_one_line(chaski_run(once), 8, "are not finite");
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

TEST_CASE("cli/chat on a terminal: Ctrl-Z and fg, during a line and during an answer") {
  setenv("CHASKI_ISA", "scalar", 1);
  Screen screen({"chat", "--device", "cpu", "-t", "1", "--ignore-end", "--seed", "1"}, "xterm");
  unsetenv("CHASKI_ISA");
  // Meanwhile the shell has the terminal: it sets its own mode and turns bracketed paste off.
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

TEST_CASE("cli/chat on a terminal: a wrapped line is redrawn after an insertion") {
  Screen screen({"chat", "--device", "cpu", "-n", "3"}, "xterm");
  screen.until("> ");
  std::string line;
  for (int i = 10; i < 30; ++i) line += std::to_string(i) + " ";
  screen.type(line);
  screen.until("29");
  screen.type("\x01");  // Ctrl-A: to the start of the line
  wait_ms(100);
  screen.type("X");
  screen.until("X10 11 12 13");
  screen.type(kCtrlC);
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}
