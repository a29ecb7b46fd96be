// chaski chat with the real program, which reads lines from a pipe. terminal_test.cpp uses a
// terminal.
#include <nlohmann/json.hpp>

#include "tests/kit/program.h"

using namespace chaski::test;
using nlohmann::json;

TEST_CASE("cli/chat --context-policy: messages that no longer fit are dropped with a note") {
  std::string questions;
  for (int i = 0; i < 6; ++i) questions += "Tell me of a cat and a dog who play with a ball.\n";
  const Arguments arguments = {"chat", "--lines", "-m",  kStory,        "-n",
                               "20",   "-c",      "128", "--ignore-end"};
  const Outcome refused = chaski_run(arguments, questions);
  CHECK(refused.status == 7);
  CHECK_MESSAGE(last_line(refused.err).find("--context-policy shift") != std::string::npos,
                refused.err);
  Arguments shift = arguments;
  shift.insert(shift.end(), {"--context-policy", "shift", "--system", "Be kind."});
  const Outcome outcome = chaski_run(shift, questions);
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK_MESSAGE(outcome.error_says("oldest messages are dropped"), outcome.err);
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') >= 6);
}

TEST_CASE("cli/chat: a conversation longer than the context uses the whole context") {
  const Outcome shown = chaski_run({"chat", "--lines", "-m", kStory, "-c", "64", "-n", "80",
                                    "--ignore-end", "--seed", "1", "--context-policy", "shift"},
                                   "A dog.\n/show\n/tokens\n");
  CHECK_MESSAGE(shown.error_says("context:  64 of 64 tokens (the conversation has "), shown.err);
  CHECK_MESSAGE(shown.error_says("\n64 of 64 tokens (the conversation has "), shown.err);
}

TEST_CASE("cli/chat over a pipe: an answer per question, commands, the end") {
  const Arguments chat = {"chat", "--lines", "-m", kStory, "-n", "12", "--seed", "3"};
  const Outcome two =
      chaski_run(chat, "Tell me a story.\n\n/help\n/nonsense\nAnd then?\n/quit\nnever read\n");
  CHECK_MESSAGE(two.status == 2, two.err);  // status of the first command that failed
  CHECK(chaski_run(chat, "Hello.\n/clear\n").status == 0);
  CHECK(two.out.find("> ") == std::string::npos);
  CHECK(two.error_says("/clear           start a new conversation"));
  CHECK(two.error_says("/nonsense is not a command"));
  // Commands do not change answers; after /clear the next question is a first one.
  const Outcome one = chaski_run(chat, "Tell me a story.\n");
  CHECK(!one.out.empty());
  CHECK(two.out.starts_with(one.out));
  CHECK(two.out.size() > one.out.size());
  const Outcome cleared = chaski_run(chat, "Tell me a story.\n/clear\nTell me a story.\n");
  CHECK(cleared.out == one.out + one.out);
}

TEST_CASE("cli/chat: commands about the conversation") {
  const TempFolder folder;
  const std::string talk = folder / "talk.json", other = folder / "other.json";
  const Arguments chat = {"chat", "--lines", "-m", kStory, "-n", "6", "--seed", "3"};
  const auto messages = [&](const std::string& path) { return json::parse(read_file(path)); };

  const Outcome first = chaski_run(chat, "A dog.\n/tokens\n/save " + talk + "\n");
  CHECK(first.error_says(" of 512 tokens\n"));
  CHECK(first.error_says("2 messages in " + talk));
  CHECK(messages(talk)["messages"][0] == json{{"role", "user"}, {"content", "A dog."}});
  const std::string answer = messages(talk)["messages"][1]["content"];
  CHECK(first.out.starts_with(answer));

  // A saved and loaded conversation continues with the same answers.
  const Outcome whole = chaski_run(chat, "A dog.\nA cat.\n"),
                resumed = chaski_run(chat, "/load " + talk + "\nA cat.\n");
  CHECK(first.out + resumed.out == whole.out);
  CHECK(resumed.error_says("2 messages from " + talk));

  const Outcome undone = chaski_run(chat, "A dog.\nA cat.\n/undo\nA cat.\n/undo\n/undo\n/undo\n");
  CHECK(undone.out == whole.out + resumed.out);
  CHECK(undone.error_says("removed: A cat."));
  CHECK(undone.error_says("chaski: error: there is no question yet"));

  const Outcome again = chaski_run(chat, "A dog.\n/retry\n/save " + other + "\n");
  CHECK(messages(other)["messages"].size() == 2);
  CHECK(messages(other)["set"].contains("seed"));  // /retry chose a new seed
  CHECK(again.out.starts_with(first.out));
  CHECK(messages(other)["messages"][1]["content"] != answer);  // another seed
  CHECK(chaski_run(chat, "/retry\n").error_says("there is no question yet"));

  const Outcome system = chaski_run(chat, "/system\n/system Be a cat.\n/system\n/clear\n/system\n");
  CHECK(system.error_says("there is no system message"));
  CHECK(system.err.find("Be a cat.") != system.err.rfind("Be a cat."));  // /clear keeps it

  std::ofstream(folder / "wrong.json") << R"([{"role": "user"}])";
  const Outcome wrong =
      chaski_run(chat, "/load " + folder / "wrong.json" + "\n/load\n/save\n/load " + folder / "no" +
                           "\n/save " + folder / "no/file" + "\n/clear now\n/quit\nnever read\n");
  CHECK(wrong.status == 3);  // status of the first error, the file
  CHECK(wrong.out.empty());
  for (const char* line : {"wrong.json is not a saved conversation: [0].content is ",
                           "/load expects a file", "/save expects a file", "no: cannot be opened",
                           "no/file: folder ", "/clear takes no argument, found \"now\""})
    CHECK_MESSAGE(wrong.error_says(line), wrong.err);
}

TEST_CASE("cli/chat --lines: a /retry whose answer does not begin leaves everything as it was") {
  const TempFolder folder;
  const std::string file = write_file(folder / "file", "A bird."), one = folder / "one",
                    two = folder / "two";
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word ";
  const Outcome outcome =
      chaski_run({"chat", "--lines", "-m", kStory, "-n", "5"},
                 "/file " + file + "\nTell me about a dog.\n/save " + one + "\n/system " + text +
                     "\n/retry\n/system \"\"\n/save " + two + "\n/undo\n");
  CHECK(outcome.status == 7);
  CHECK_MESSAGE(outcome.error_says("but the context holds 512"), outcome.err);
  REQUIRE_MESSAGE(have(two), outcome.err);
  CHECK(json::parse(read_file(one)) == json::parse(read_file(two)));  // the seed too
  CHECK_MESSAGE(outcome.error_says(file + " is sent with the next message"), outcome.err);
}

TEST_CASE("cli/chat: a conversation is saved with its KV cache, which is not computed again") {
  const TempFolder folder;
  const std::string talk = folder / "talk.json";
  for (const char* kv : {"f16", "q4_0"}) {
    const auto chat = [&](Arguments more, const std::string& lines) {
      more.insert(more.begin(), {"chat", "--lines", "-m", kStory, "-n", "30", "--seed", "3", "-v"});
      return chaski_run(more, lines);
    };
    std::filesystem::remove(talk);
    const Outcome whole = chat({"--kv", kv}, "A dog.\nA cat.\n"),
                  first = chat({"--kv", kv}, "A dog.\n/save " + talk + "\n"),
                  resumed = chat({"--kv", kv, "--resume", talk}, "A cat.\n");
    CHECK_MESSAGE(first.error_says(" tokens in " + talk + ".kv, "), first.err);
    CHECK_MESSAGE(first.error_says(" MB"), first.err);
    CHECK_MESSAGE(resumed.error_says(" tokens from " + talk + ".kv"), resumed.err);
    CHECK(first.out + resumed.out == whole.out);
    const auto known = [](const Outcome& outcome) {  // from the line about the last answer
      const size_t at = outcome.err.rfind(" cached)");
      return at == std::string::npos ? "" : outcome.err.substr(outcome.err.rfind('(', at), 8);
    };
    CHECK_MESSAGE(known(resumed) == known(whole), resumed.err);

    const Outcome system =
        chat({"--kv", kv, "--resume", talk, "--system", "Be a cat."}, "/system\n/tokens\n");
    CHECK_MESSAGE(system.error_says("\nBe a cat.\n"), system.err);

    // With another format or a damaged file the text is read again, and the answer is the same.
    const Outcome other = chat({"--kv", "f32", "--resume", talk}, "A cat.\n");
    CHECK_MESSAGE(other.error_says(std::string("talk.json.kv: its keys and values are in ") + kv +
                                   ", expected f32 (--kv " + kv +
                                   " continues with them): the text is read again"),
                  other.err);
    const Outcome shorter = chat({"--kv", "f32", "-c", "256", "--resume", talk}, "A cat.\n");
    CHECK_MESSAGE(shorter.error_says(
                      std::string("are made in a context of 512 tokens, expected 256 and in ") +
                      kv + ", expected f32 (-c 512 --kv " + kv + " continues with them)"),
                  shorter.err);
    check_one_line(
        chaski_run({"chat", "-q", "--lines", "-m", kStory, "--resume", talk + ".kv"}, "a\n"), 2,
        "talk.json.kv holds a KV cache, expected the conversation that it belongs "
        "to, " +
            talk);
    std::string bytes = read_file(talk + ".kv");
    bytes[bytes.size() / 2] ^= 4;
    write_file(talk + ".kv", bytes);
    const Outcome damaged = chat({"--kv", kv}, "/load " + talk + "\nA cat.\n");
    CHECK_MESSAGE(damaged.error_says("the file is damaged"), damaged.err);
    CHECK(damaged.out == resumed.out);
  }
  // A cleared conversation is not saved, and the file of another one is not overwritten.
  const auto lines = [](const std::string& typed) {
    return chaski_run({"chat", "--lines", "-m", kStory, "-n", "3"}, typed);
  };
  const std::string a = folder / "a", b = folder / "b";
  const Outcome cleared =
      lines("A secret.\n/save " + a + "\n/clear\n/save " + b + "\nA cat.\n/save " + a + "\n");
  CHECK_MESSAGE(cleared.status == 0, cleared.err);
  CHECK_FALSE(have(b + ".kv"));
  const Outcome lost = lines("A dog.\n/save " + a + "\n");
  CHECK(lost.status == 2);
  CHECK_MESSAGE(lost.error_says("holds another conversation, expected another name"), lost.err);
  // Only the edited question removes the old one, /edit alone does not.
  const Outcome edited = lines("A dog.\n/edit\n/save " + folder / "c" + "\n");
  CHECK_MESSAGE(edited.error_says("2 messages in "), edited.err);
  // A file that is not a conversation, and a name that ends in .kv.
  write_file(folder / "letter", "Dear diary");
  check_one_line(
      chaski_run({"chat", "-q", "--lines", "-m", kStory, "--resume", folder / "letter"}, "a\n"), 3,
      "letter is not a saved conversation: byte 1 is not valid JSON");
  const Outcome states = lines("A dog.\n/save " + folder / "d.kv" + "\n");
  CHECK(states.status == 2);
  CHECK_MESSAGE(states.error_says("d.kv: names that end in .kv are for the KV cache of a "
                                  "conversation, expected " +
                                  folder / "d" + "\n"),
                states.err);
  CHECK_FALSE(have(folder / "d.kv"));
  std::filesystem::remove(talk);
  write_file(talk + ".kv", "dear diary");
  const Outcome kept =
      chaski_run({"chat", "--lines", "-m", kStory, "-n", "1"}, "a\n/save " + talk + "\n");
  CHECK_MESSAGE(kept.error_says("talk.json.kv: the file exists and holds no KV cache"), kept.err);
  CHECK(read_file(talk + ".kv") == "dear diary");
}

TEST_CASE("cli/chat: settings of /set are saved with a conversation") {
  const TempFolder folder;
  const std::string talk = folder / "talk.json";
  const auto chat = [&](Arguments more, const std::string& lines) {
    more.insert(more.begin(), {"chat", "--lines", "-m", kStory});
    return chaski_run(more, lines);
  };
  chat({"-n", "9"},
       "/set temp 1.5\n/set dynatemp-range 1.2\n/set n 4\n/set seed 7\nA dog.\n/save " + talk +
           "\n");
  const json set = {{"temp", "1.5"}, {"dynatemp-range", "1.2"}, {"tokens", "4"}, {"seed", "7"}};
  CHECK(json::parse(read_file(talk))["set"] == set);
  const Outcome resumed = chat({"--resume", talk}, "/show\nA cat.\n/save " + talk + "\n");
  CHECK_MESSAGE(resumed.error_says(
                    "\nsettings of the file: dynatemp-range 1.2, seed 7, temp 1.5, tokens 4\n"),
                resumed.err);
  CHECK_MESSAGE(resumed.error_says("settings: temp 1.5, "), resumed.err);
  CHECK_MESSAGE(resumed.error_says(", seed 7, tokens 4\n"), resumed.err);
  CHECK(json::parse(read_file(talk))["set"] == set);
  // The command line overrides saved settings, also in its short form.
  const Outcome typed = chat({"--resume", talk, "-n", "5", "--temp", "1.3"}, "/show\n");
  CHECK_MESSAGE(typed.error_says("settings: temp 1.3, "), typed.err);
  CHECK_MESSAGE(typed.error_says("tokens 5\n"), typed.err);
  CHECK_MESSAGE(typed.error_says("\nsettings of the file: dynatemp-range 1.2, seed 7\n"),
                typed.err);
  // Saved settings that conflict are ignored, and the conversation continues.
  const Outcome against = chat({"--resume", talk, "--temp", "0.5"}, "/show\n/tokens\n");
  CHECK(against.status == 0);
  CHECK_MESSAGE(
      against.error_says("talk.json: its setting dynatemp-range is ignored: dynatemp-range is 1.2"),
      against.err);
  CHECK(against.error_says("settings: temp 0.5, "));
  write_file(talk, R"({"messages": [], "set": {"temp": 1}})");
  CHECK(chat({"--resume", talk}, "").error_says("set.temp is 1, expected a string"));
}

TEST_CASE("cli/chat -p and a pipe: one question, its answer, and the end") {
  const TempFolder folder;
  const Arguments chat = {"chat", "-q", "-m", kStory, "-n", "12", "--seed", "3"};
  const auto asked = [&](Arguments more, const std::string& piped = "") {
    more.insert(more.begin(), chat.begin(), chat.end());
    return chaski_run(more, piped);
  };
  std::ofstream(folder / "question") << "A dog.\n\nA cat.";
  const Outcome one = asked({"-p", "A dog.\n\nA cat."});
  CHECK_MESSAGE(one.status == 0, one.err);
  CHECK(one.out.ends_with("\n"));
  CHECK(one.err.empty());
  CHECK(asked({}, "A dog.\n\nA cat.\n").out == one.out);
  CHECK(asked({"-p", "A dog."}, "A cat.\n").out == one.out);
  CHECK(asked({"-f", folder / "question"}).out == one.out);
  CHECK(asked({"--lines"}, "A dog.\n").out != one.out);
  // Commands are recognised only with --lines.
  CHECK(!asked({}, "/quit\n").out.empty());
  CHECK(asked({"--lines"}, "/quit\n").out.empty());
  check_one_line(asked({}, " \n"), 2, "no question given");
  check_one_line(asked({"--lines", "-p", "a"}), 2, "--lines");
}

TEST_CASE("cli/chat: /set, /show and /stats") {
  const Arguments chat = {"chat", "--lines", "-m", kStory, "-n", "6", "--seed", "3"};
  const Outcome set = chaski_run(chat, "/set temp 0\n/set parameter tokens 4\nA dog.\n/show\n");
  CHECK_MESSAGE(set.error_says("temp 0, top-k 40"), set.err);
  CHECK_MESSAGE(set.error_says("seed 3, tokens 4"), set.err);
  CHECK(set.error_says("system:   none"));
  CHECK(set.out ==
        chaski_run({"chat", "-m", kStory, "-n", "4", "--temp", "0", "-p", "A dog."}).out);
  for (const auto& [line, error] : std::vector<std::pair<std::string, std::string>>{
           {"/set", "/set expects a name and a value"},
           {"/set temp", "/set expects a name and a value"},
           {"/set temp hot", "temp is \"hot\", expected a decimal number"},
           {"/set top-p 2", "top-p is 2, expected more than 0, at most 1"},
           {"/set --top-p 2", "top-p is 2, expected more than 0, at most 1"},
           {"/set seed many", "seed is \"many\", expected -1 (a random one) or a number from 0"},
           {"/set zzzzzz 1", "/set has no setting zzzzzz, expected one of "},
           {"/set tmp 1", "/set has no setting tmp, did you mean temp?"},
           {"/set keep 3", "keep has no effect"},
           {"/set n many", "tokens is \"many\", expected"},
           {"/set -- x", "unexpected \"x\", expected a setting"},
           {"/set logit-bias 99999+1", "logit-bias has token 99999, expected 0 to "},
           {"/sett", "/sett is not a command, did you mean /set?"},
           {"/copy", "there is no answer to copy"},
           {"/edit", "there is no question yet"}}) {
    const Outcome wrong = chaski_run(chat, line + "\n/show\n");
    CHECK_MESSAGE(wrong.error_says("chaski: error: " + error), wrong.err);
    CHECK(wrong.error_says("temp 0.8"));
  }
  const Outcome stats = chaski_run(chat, "A dog.\nA cat.\n/stats\n");
  CHECK_MESSAGE(stats.error_says("2 answers; "), stats.err);
  CHECK_MESSAGE(stats.error_says("12 tokens written, "), stats.err);
}

TEST_CASE("cli/chat: an empty answer is an empty line") {
  const Outcome none = chaski_run({"chat", "-m", kStory, "--lines", "--grammar", "root ::= \"\""},
                                  "A dog.\nA cat.\n");
  CHECK_MESSAGE(none.out == "\n\n", none.err);
}

TEST_CASE("cli/chat: messages of several lines") {
  const TempFolder folder;
  const std::string talk = folder / "talk.json";
  const Outcome outcome =
      chaski_run({"chat", "--lines", "-m", kStory, "-n", "2", "--seed", "3"},
                 "\"\"\"\n/quit\n \\\nb\n\"\"\"\n\"\"\"c\"\"\"\nd\\\ne\\\n\nf\n/save " + talk +
                     "\n\"\"\"\nno end");
  CHECK(outcome.status == 0);
  std::vector<std::string> said;
  const json saved = json::parse(read_file(talk));
  for (const json& message : saved["messages"])
    if (message["role"] == "user") said.push_back(message["content"]);
  CHECK(said == std::vector<std::string>{"/quit\n \\\nb", "c", "d\ne\n", "f"});
}

TEST_CASE("cli/chat refuses a conversation that does not fit") {
  std::string question;
  for (int i = 0; i < 600; ++i) question += "word ";
  const Outcome outcome = chaski_run({"chat", "-m", kStory, "-n", "4"}, question + "\n");
  CHECK(outcome.status == 7);
  CHECK_MESSAGE(last_line(outcome.err).find("512") != std::string::npos, outcome.err);
}
