// Slash commands of chaski chat about model, files and settings, over a pipe and on a terminal.
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "ggml-like-tensor/file/quipu.h"
#include "tests/cli/screen.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

Outcome lines(const Arguments& more, const std::string& typed) {
  Arguments all = {"chat", "--lines", "-m", kStory, "-n", "20", "--seed", "3"};
  all.insert(all.end(), more.begin(), more.end());
  return chaski_run(all, typed);
}

// The bundled model with a template, in a file of its own.
std::string story_with(const std::string& path, const std::string& chat_template) {
  ModelSource source = source_of(open_quipu(kStory));
  source.meta.set_str("tokenizer.chat_template", chat_template);
  write_quipu(path, source, 1);
  return path;
}

const std::string kColons =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

}  // namespace

TEST_CASE(
    "cli/chat /set: stop, grammar, json-schema, regex and context-policy are as on the line") {
  const TempFolder folder;
  const std::string grammar = write_file(folder / "g", "root ::= \"yes\" | \"no\"\n");
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "boolean"}},
                                 "required": ["a"], "additionalProperties": false})";
  std::string one_line = schema;
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  for (const auto& [setting, flags] : std::vector<std::pair<std::string, Arguments>>{
           {"stop name", {"--stop", "name"}},
           {"stop \"q\" \"y n\\u0061\"", {"--stop", "q", "--stop", "y na"}},
           {"grammar " + grammar, {"--grammar", grammar}},
           {"grammar root ::= \"si\" | \"no\"", {"--grammar", "root ::= \"si\" | \"no\""}},
           {"json-schema " + one_line, {"--json-schema", schema}},
           {"regex \"[ab]{3,5}\"", {"--regex", "\"[ab]{3,5}\""}}}) {
    const Outcome set = lines({}, "/set " + setting + "\nA dog.\n");
    CHECK_MESSAGE(set.status == 0, set.err);
    CHECK_MESSAGE(set.out == lines(flags, "A dog.\n").out, setting, ": ", set.out);
    CHECK(set.out != lines({}, "A dog.\n").out);
    // "" turns it off, also where the command line has it.
    const std::string off = "/set " + setting.substr(0, setting.find(' ')) + " \"\"\n";
    const Outcome cleared = lines(flags, off + "A dog.\n");
    CHECK_MESSAGE(cleared.out == lines({}, "A dog.\n").out, cleared.err);
  }
  // A form replaces another one, and all of them are saved and restored.
  const std::string talk = folder / "talk";
  const Outcome saved =
      lines({}, "/set grammar " + grammar + "\n/set regex [ab]{3}\n/set stop \"b\" \"c\"\n" +
                    "/set context-policy shift\n/save " + talk + "\n/show\n");
  CHECK_MESSAGE(saved.error_says("\nregex: [ab]{3}\n"), saved.err);
  CHECK_MESSAGE(
      saved.err.substr(saved.err.find("\nregex: ")).find("\ngrammar: ") == std::string::npos,
      saved.err);
  CHECK(saved.error_says("\ncontext-policy: shift\n"));
  CHECK(saved.error_says("\nstop: b\nstop: c\n"));
  CHECK(json::parse(read_file(talk))["set"] ==
        json{{"context-policy", "shift"}, {"regex", "[ab]{3}"}, {"stop", "\"b\" \"c\""}});
  const Outcome resumed = lines({"--resume", talk}, "A dog.\n/load " + talk + "\nA dog.\n");
  CHECK_MESSAGE(resumed.out == lines({"--regex", "[ab]{3}", "--stop", "b", "--stop", "c"},
                                     "A dog.\n/clear\nA dog.\n")
                                   .out,
                resumed.out);
  // A long conversation goes on.
  std::string questions = "/set context-policy shift\n";
  for (int i = 0; i < 6; ++i) questions += "Tell me of a cat and a dog and their ball.\n";
  const Outcome shift = lines({"-c", "128", "--ignore-end"}, questions);
  CHECK_MESSAGE(shift.status == 0, shift.err);
  CHECK(shift.error_says("oldest messages are dropped"));
  // What the context dropped is still saved and shown.
  const std::string whole = folder / "whole";
  const Outcome kept = lines({"-c", "128", "--ignore-end"},
                             "A dog.\n" + questions + "/history\n/save " + whole + "\n");
  CHECK_MESSAGE(kept.error_says(" of these are no longer in the context"), kept.err);
  CHECK_MESSAGE(kept.error_says("14 messages in " + whole), kept.err);
  const json file = json::parse(read_file(whole));
  REQUIRE(file["messages"].size() == 14);
  CHECK(file["messages"][0]["content"] == "A dog.");
  CHECK(kept.error_says("\n" + std::to_string(file["dropped"].get<int>()) + " of these are"));
  // They stay out of the same context, and come back into one that holds them.
  const auto resumed_in = [&](const char* context) {
    return lines({"-c", context, "--ignore-end", "--resume", whole}, "/history\n/save " + whole);
  };
  CHECK(resumed_in("128").error_says(" of these are no longer in the context"));
  CHECK(resumed_in("128").error_says(" of them are not in the context, which was full"));
  CHECK(json::parse(read_file(whole)) == file);
  CHECK_FALSE(resumed_in("2048").error_says("no longer in the context"));
  CHECK_FALSE(json::parse(read_file(whole)).contains("dropped"));
  write_file(whole, json{{"messages", file["messages"]}, {"dropped", 15}}.dump());
  CHECK_MESSAGE(resumed_in("128").error_says("dropped is 15, expected 0 to 14"),
                resumed_in("128").err);
}

TEST_CASE("cli/chat /set: wrong values change nothing and say what is expected") {
  const TempFolder folder;
  write_file(folder / "tools.json", R"([{"name": "sing"}])");
  for (const auto& [line, error] : std::vector<std::pair<std::string, std::string>>{
           {"/set stop \"a", "stop is \"a, expected a text, or texts in quotes such as"},
           {"/set stop \"a\" b", "stop is \"a\" b, expected a text, or texts in quotes such as"},
           {"/set temp \"\"", "temp is empty, expected a value"},
           {"/set grammar " + folder / "none", folder / "none" + ": cannot be opened"},
           {"/set grammar root ::= (", "grammar"},
           {"/set regex (", "regex"},
           {"/set json-schema {", "json-schema"},
           {"/set context-policy turn",
            "context-policy is \"turn\", expected stop, shift or sinks"}}) {
    const Outcome wrong = lines({}, line + "\nA dog.\n");
    CHECK_MESSAGE(wrong.error_says("chaski: error: " + error), line, ": ", wrong.err);
    CHECK(wrong.status != 0);
    CHECK(wrong.out == lines({}, "A dog.\n").out);
  }
  CHECK(lines({"--ignore-end"}, "/set regex a\n")
            .error_says("a grammar and --ignore-end are both given, expected one of them"));
  // The system message.
  const Outcome system = lines({}, "/set system Be a cat.\n/system\n/set system \"\"\n/system\n");
  CHECK_MESSAGE(system.error_says("Be a cat.\nthere is no system message\n"), system.err);
  // It is among the names of a refusal, and has no other ones: --system-prompt is a flag only.
  for (const auto& [typed, error] : std::vector<std::pair<std::string, std::string>>{
           {"system-prompt", "/set has no setting system-prompt, expected one of stop, "},
           {"sys", "/set has no setting sys, expected one of stop, "},
           {"-sys", "/set has no setting sys, expected one of stop, "},
           {"zzzzzz", "/set has no setting zzzzzz, expected one of stop, "},
           {"sytem", "/set has no setting sytem, did you mean system?"}}) {
    const Outcome wrong = lines({}, "/set " + typed + " Be a cat.\n/system\n");
    CHECK(wrong.status == int(Exit::usage));
    CHECK_MESSAGE(wrong.error_says("chaski: error: " + error), wrong.err);
    CHECK_MESSAGE((contains(error, "did you mean") || wrong.error_says(", system\n")), wrong.err);
    CHECK_MESSAGE(wrong.error_says("there is no system message\n"), wrong.err);
  }
}

TEST_CASE("cli/chat: a saved conversation holds the text of a grammar and opens no file") {
  const TempFolder folder;
  const std::string talk = folder / "talk", secret = folder / "secret", pipe = folder / "pipe";
  const std::string text = "# of a file\nroot ::= \"yes\" | \"no\"\n";
  const std::string grammar = write_file(folder / "g", text),
                    schema = write_file(folder / "s", "true\n");
  const Outcome saved =
      lines({}, "/set grammar " + grammar + "\n/set temp 0.5\n/save " + talk +
                    "\n/show\n/set json-schema " + schema + "\n/save " + talk + "2\n");
  CHECK_MESSAGE(saved.status == 0, saved.err);
  CHECK_MESSAGE(saved.error_says("set here: grammar # of a file ..., temp 0.5\n"), saved.err);
  CHECK(json::parse(read_file(talk))["set"] == json{{"grammar", text}, {"temp", "0.5"}});
  CHECK(json::parse(read_file(talk + "2"))["set"] ==
        json{{"json-schema", "true\n"}, {"temp", "0.5"}});
  std::filesystem::remove(grammar);
  const Outcome resumed = lines({"--resume", talk}, "A dog.\n");
  CHECK_MESSAGE(resumed.out == lines({"--grammar", text, "--temp", "0.5"}, "A dog.\n").out,
                resumed.err);
  // A path is taken for a wrong grammar: the file is not read, and the other settings apply.
  write_file(secret, text);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string form : {"grammar", "json-schema"})
    for (const std::string& path : {secret, pipe}) {
      write_file(
          talk, json{{"messages", json::array()}, {"set", {{form, path}, {"temp", "0.5"}}}}.dump());
      const Outcome outcome = lines({"--resume", talk}, "A dog.\n");
      CHECK_MESSAGE(outcome.error_says(talk + ": its setting " + form + " is ignored: " + form),
                    outcome.err);
      CHECK_MESSAGE(outcome.error_says("settings of the file: temp 0.5\n"), outcome.err);
      CHECK(outcome.out == lines({"--temp", "0.5"}, "A dog.\n").out);
    }
}

TEST_CASE("cli/chat: the grammar's file is read once, and may be gone at /model and /load") {
  const TempFolder folder;
  const std::string grammar = folder / "g", talk = folder / "talk",
                    other = story_with(folder / "other.quipu", kColons);
  for (const std::string& command :
       {"/model " + folder / "letter", "/model " + other, "/set regex a\n/load " + talk}) {
    write_file(grammar, "root ::= \"yes\" | \"no\"\n");
    write_file(folder / "letter", "Dear diary");
    write_file(talk, R"({"messages": []})");
    REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
    // The grammar comes from a pipe, which can be read once.
    std::thread writer([&] { std::ofstream(folder / "fifo") << read_file(grammar); });
    const Outcome outcome =
        lines({"--grammar", folder / "fifo"}, "A dog.\n" + command + "\nA cat.\n/show\n");
    writer.join();
    std::filesystem::remove(folder / "fifo");
    const Outcome expected =
        lines({"--grammar", grammar}, "A dog.\n" + command + "\nA cat.\n/show\n");
    CHECK_MESSAGE(outcome.out == expected.out, command, ": ", outcome.err);
    CHECK(outcome.status == expected.status);
    CHECK_MESSAGE(outcome.error_says("settings: temp "), outcome.err);
  }
}

TEST_CASE("cli/chat /model finds models as -m does and names the whole model") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "shelf");
  story_with(folder / "shelf/story-teller.quipu", kColons);
  setenv("CHASKI_MODELS", (folder / "shelf").c_str(), 1);
  const Outcome part = lines({}, "/model teller\n/model\n"),
                short_name = lines({}, "/model smollm2\nA dog.\n"),
                nonsense = lines({}, "/model nonsense\nA dog.\n");
  unsetenv("CHASKI_MODELS");
  CHECK_MESSAGE(part.error_says("the model is story-teller"), part.err);
  CHECK_MESSAGE(
      short_name.error_says("is neither a file nor a model on this machine; chaski pull smollm2"),
      short_name.err);
  CHECK_MESSAGE(nonsense.error_says(
                    "nonsense is neither a file nor a model on this machine; the nearest names"),
                nonsense.err);
  CHECK(nonsense.out == lines({}, "A dog.\n").out);
}

TEST_CASE("cli/chat --stop: a line says that it ended the answer") {
  const std::string said = "the answer ended before a --stop text";
  const Arguments one = {"chat", "-m", kStory, "-n", "20", "--seed", "3", "-p", "A dog."};
  Arguments stopped = one;
  stopped.insert(stopped.end(), {"--stop", "name"});
  CHECK_MESSAGE(chaski_run(stopped).error_says(said), chaski_run(stopped).err);
  CHECK_FALSE(chaski_run(one).error_says(said));
  Screen screen(
      {"chat", "--device", "cpu", "-m", kStory, "-n", "20", "--seed", "3", "--stop", "name"},
      "xterm");
  screen.resize(100);
  screen.until("> ");
  screen.type("/copy\r");
  screen.until("there is no answer to copy");
  screen.type("A dog.\r");
  screen.until("ended before a --stop text");
  screen.until("> ");
  screen.type("/set tokens 1\r");
  screen.until("set here: tokens 1");
  screen.type("A cat.\r");
  CHECK(screen.until("ended by -n").find("tok/s") == std::string::npos);
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat /file: a question that is refused keeps its files") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "A dog ran. ";
  const std::string a = write_file(folder / "a", text);
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "-n", "4", "--seed", "3"}, "xterm");
  screen.resize(200);
  screen.until("> ");
  screen.type("/file " + a + "\r");
  screen.until("are sent with the next message");
  screen.type("Sum up.\r");
  screen.until("/a is sent with the next message");
  screen.type("/save " + folder / "talk\r");
  screen.until("/a is not saved, because it is sent with the next message");
  screen.type("/clear\r");
  screen.until("/a is not sent with the next message");
  screen.type("/file\r");
  screen.until("/file expects a file");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat: a command takes an argument of several lines") {
  const Outcome outcome = lines({}, "/system Be\\\nkind.\n/system\n/nonsense\\\nof two lines\n");
  CHECK_MESSAGE(outcome.error_says("Be\nkind.\n"), outcome.err);
  CHECK(outcome.status == 0);  // the last one is a question
  CHECK(!outcome.out.empty());
}

TEST_CASE("cli/chat /model: another model continues the conversation") {
  const TempFolder folder;
  const std::string other = story_with(folder / "other.quipu", kColons), talk = folder / "talk";
  const Outcome changed = lines({}, "A dog.\n/save " + talk + "\n/set temp 0.5\n/model " + other +
                                        "\nA cat.\n/model\n/show\n/save " + talk + "2\n");
  CHECK_MESSAGE(changed.status == 0, changed.err);
  CHECK(changed.error_says("the model is " + other +
                           ": the next question reads the conversation again"));
  CHECK_MESSAGE(changed.error_says("\nthe model is " + other + "\n"), changed.err);
  CHECK(changed.error_says("model:    " + other));
  const json saved = json::parse(read_file(talk + "2"))["messages"];
  REQUIRE(saved.size() == 4);
  const Outcome expected = chaski_run({"chat", "--lines", "-m", other, "-n", "20", "--seed", "3",
                                       "--temp", "0.5", "--resume", talk},
                                      "A cat.\n");
  CHECK_MESSAGE(changed.out.ends_with(expected.out), changed.out);
  CHECK(saved[3]["content"] != "");
  // A model that cannot be opened: the old one goes on, as if nothing was said.
  write_file(folder / "letter", "Dear diary");
  for (const std::string& name : {folder / "none.gguf", folder / "letter"}) {
    const Outcome wrong = lines({}, "A dog.\n/model " + name + "\nA cat.\n");
    CHECK_MESSAGE(wrong.error_says("chaski: error: " + name), wrong.err);
    CHECK(wrong.out == lines({}, "A dog.\nA cat.\n").out);
  }
  // One that fails only after the old one is closed: its template knows no tools.
  const std::string hermes = story_with(
                        folder / "tools.quipu",
                        "{% for t in tools %}{{ t.function.name }} {% endfor %}" + kColons),
                    tools = write_file(folder / "tools.json", R"([{"name": "sing"}])");
  const auto with_tools = [&](const std::string& typed) {
    return chaski_run({"chat", "--lines", "-m", hermes, "-n", "9", "--seed", "3", "--tools", tools},
                      typed);
  };
  const Outcome refused = with_tools("A dog.\n/model " + other + "\nA cat.\n/model\n");
  CHECK_MESSAGE(refused.error_says("its chat template does not show tools to the model"),
                refused.err);
  CHECK_MESSAGE(refused.error_says("the model is " + hermes), refused.err);
  CHECK(refused.out == with_tools("A dog.\nA cat.\n").out);
}

TEST_CASE("cli/chat --resume: without -m the model that the conversation was saved with") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "shelf");
  const std::string shelved = story_with(folder / "shelf/teller.quipu", kColons),
                    elsewhere = story_with(folder / "elsewhere.quipu", kColons),
                    talk = folder / "talk", path_talk = folder / "path";
  const OwnVariable models("CHASKI_MODELS", folder / "shelf");
  const auto chat = [](const Arguments& more, const std::string& typed) {
    Arguments all = {"chat", "--lines", "-n", "9", "--seed", "3"};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all, typed);
  };
  const auto saved_model = [](const std::string& file) {
    return json::parse(read_file(file))["model"].get<std::string>();
  };
  CHECK(chat({"-m", "tell"}, "A dog.\n/save " + talk + "\n").status == 0);
  CHECK(saved_model(talk) == "teller");
  CHECK(chat({"-m", elsewhere}, "A dog.\n/save " + path_talk + "\n").status == 0);
  CHECK(saved_model(path_talk) == std::filesystem::canonical(elsewhere).string());
  for (const auto& [file, model] : {std::pair(talk, shelved), std::pair(path_talk, elsewhere)}) {
    const Outcome resumed = chat({"--resume", file}, "A cat.\n/model\n"),
                  named = chat({"-m", model, "--resume", file}, "A cat.\n");
    CHECK_MESSAGE(resumed.status == 0, resumed.err);
    CHECK_MESSAGE(resumed.error_says(", with which " + file + " was saved\n"), resumed.err);
    CHECK_MESSAGE(resumed.error_says("the model is " + model), resumed.err);
    CHECK_FALSE(resumed.error_says("built-in model"));
    CHECK(resumed.out == named.out);
    CHECK_FALSE(named.error_says("was saved"));
  }
  // Another model continues it with a note, after -m and after /load.
  const std::string note = "chaski: note: " + talk + " was saved with the model teller; ";
  const Outcome other = chat({"-m", elsewhere, "--resume", talk}, "A cat.\n"),
                loaded = chat({"-m", elsewhere}, "/load " + talk + "\n/model teller\n"),
                model = chat({"-m", elsewhere}, "/load teller\n");
  const std::string offer =
      note + "it continues with " + elsewhere + "; /model teller changes to that one\n";
  CHECK_MESSAGE(other.error_says(offer), other.err);
  CHECK_MESSAGE(loaded.error_says(offer), loaded.err);
  CHECK_MESSAGE(loaded.error_says("the model is teller: the next question"), loaded.err);
  CHECK_MESSAGE(model.error_says("expected a saved conversation; /model teller changes the model"),
                model.err);
  // A model that is gone, and a file that is not one: neither is opened.
  std::filesystem::remove(shelved);
  check_one_line(chat({"--resume", talk}, "A cat.\n"), 5,
                 talk + " was saved with the model teller, which is not on this machine, expected");
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  write_file(talk, json{{"model", pipe}, {"messages", json::array()}}.dump());
  check_one_line(chat({"--resume", talk}, "A cat.\n"), 5, "which is not on this machine");
  // A damaged conversation is refused before the built-in model is opened in its place.
  const Outcome damaged =
      chat({"--resume", write_file(folder / "damaged", "{\"messages\":[")}, "A cat.\n");
  check_one_line(damaged, 3, "damaged is not a saved conversation: byte ");
  // The built-in model has no file.
  CHECK(chat({}, "A dog.\n/save " + folder / "own\n").status == 0);
  CHECK(saved_model(folder / "own") == "(bundled)");
  CHECK_FALSE(chat({"--resume", folder / "own"}, "A cat.\n").error_says("was saved"));
}

TEST_CASE("cli/chat /file: the text of files is sent with the next message") {
  const TempFolder folder;
  const std::string a = write_file(folder / "a.txt", "Alpha.\nBeta.\n"),
                    b = write_file(folder / "b.txt", "Gamma."), talk = folder / "talk";
  const Outcome outcome =
      lines({}, "/file " + a + "\n/file " + b + "\n/file\nSum up:\nAgain.\n/save " + talk + "\n");
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK_MESSAGE(outcome.error_says(a + ": "), outcome.err);
  CHECK(outcome.error_says(" tokens are sent with the next message"));
  CHECK(said_in(talk, "user") ==
        std::vector<std::string>{"Sum up:\n\n" + a + ":\nAlpha.\nBeta.\n\n" + b + ":\nGamma.",
                                 "Again."});
  const std::string short_one = write_file(folder / "one", "a");
  CHECK_MESSAGE(lines({}, "/file " + short_one + "\n")
                    .error_says(short_one + ": 1 token is sent with the next message\n"),
                lines({}, "/file " + short_one + "\n").err);
  const Outcome unused = lines({}, "Hello.\n/file " + a + "\n/file " + b + "\n");
  for (const std::string& file : {a, b})
    CHECK_MESSAGE(unused.error_says("chaski: note: " + file +
                                    " is not sent, because no message followed it\n"),
                  unused.err);
  CHECK_FALSE(outcome.error_says("is not sent"));
  const Outcome back = lines({}, "/file " + a + "\n/file \"\"\nHello.\n/save " + talk + "b\n");
  CHECK(said_in(talk + "b", "user") == std::vector<std::string>{"Hello."});
  // After /undo they are sent with the next message.
  const Outcome undone = lines({}, "/file " + a + "\nHello.\n/undo\nAgain.\n/save " + talk + "c\n");
  CHECK_MESSAGE(undone.error_says("removed: Hello. and 4 more lines\n"), undone.err);
  const Outcome queued = lines({}, "/file " + a + "\nHello.\n/undo\n");
  CHECK_MESSAGE(queued.error_says(a + " is not sent, because no message followed it\n"),
                queued.err);
  CHECK(said_in(talk + "c", "user") ==
        std::vector<std::string>{"Again.\n\n" + a + ":\nAlpha.\nBeta."});
  for (const auto& [line, error] : std::vector<std::pair<std::string, std::string>>{
           {"/file", "/file expects a file"},
           {"/file " + folder / "none", "none: cannot be opened"},
           {"/file " + folder.path, "cannot be read"},
           {"/file " + kStory, "is not text in UTF-8, expected a text file"}})
    CHECK_MESSAGE(lines({}, line + "\n").error_says(error), line);
}

TEST_CASE("cli/chat: a note names text that is not UTF-8, and what the tokenizer does with it") {
  const TempFolder folder;
  const auto check = [](const Outcome& outcome, const std::string& what, const char* fate) {
    const std::string note = fmt::format(
        "chaski: note: the {} is not UTF-8: the byte at offset 1 is \\xe9, which the tokenizer {}; "
        "is it UTF-16 or Latin-1?\n",
        what, fate);
    CHECK(outcome.status == 0);
    CHECK_MESSAGE(outcome.error_says(note), outcome.err);
    CHECK_MESSAGE(outcome.err.find("UTF-8") == outcome.err.rfind("UTF-8"), outcome.err);
  };
  check(lines({}, "A\xe9.\n"), "question", "keeps");
  check(lines({}, "A dog.\n/edit\nA\xe9.\n"), "question", "keeps");
  check(lines({}, "A\xe9.\n/retry\n"), "question", "keeps");
  check(lines({}, "/system A\xe9.\n"), "system message", "keeps");
  check(lines({"--system", "A\xe9."}, "A dog.\n"), "system message", "keeps");
  const std::string talk = folder / "talk";
  lines({}, "A dog.\n/save " + talk + "\n");
  check(lines({"--system", "A\xe9.", "--resume", talk}, ""), "system message", "keeps");
  ModelSource source = source_of(open_quipu(kStory));
  source.meta.set_strs("tokenizer.normalizer", std::vector<std::string>{"nfc"});
  write_quipu(folder / "nfc.quipu", source, 1);
  check(chaski_run({"chat", "-m", folder / "nfc.quipu", "-n", "3", "-p", "A\xe9."}), "question",
        "replaces by U+FFFD");
}

TEST_CASE("cli/chat /history, and the last turns of a conversation that is continued") {
  const TempFolder folder;
  const std::string talk = write_file(folder / "talk", R"({"messages":[
      {"role":"system","content":"Be kind."},{"role":"user","content":"One?"},
      {"role":"assistant","content":"First."},{"role":"user","content":"Two?\nlines"},
      {"role":"assistant","content":"Second."},{"role":"user","content":"Three?"},
      {"role":"assistant","content":"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl"}]})");
  const Outcome shown = lines({"--resume", talk}, "/history\n");
  CHECK_MESSAGE(shown.error_says("system: Be kind.\n> One?\nFirst.\n\n> Two?\nlines\nSecond.\n\n"
                                 "> Three?\na\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n\n"),
                shown.err);
  CHECK(lines({}, "/history\n").error_says("there is no message yet"));
  write_file(folder / "tab", R"({"messages":[{"role":"user","content":"if x:\n\treturn\u0001"}]})");
  const Outcome tab = lines({"--resume", folder / "tab"}, "/history\n/undo\n");
  CHECK_MESSAGE(tab.error_says("> if x:\n    return\\x01\n"), tab.err);
  write_file(folder / "tab", R"({"messages":[{"role":"user","content":"\tx"}]})");
  CHECK(lines({"--resume", folder / "tab"}, "/undo\n").error_says("removed:     x\n"));
  Screen screen({"chat", "--device", "cpu", "-m", kStory, "--resume", talk}, "dumb");
  CHECK(screen.until("> Two?\r\n").find("One?") == std::string::npos);
  const std::string last = screen.until("> Three?\r\na\r\n");
  CHECK(last == "lines\r\nSecond.\r\n\r\n> Three?\r\na\r\n");
  screen.until("j\r\n... 2 lines more\r\n");
  screen.until("> ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat --chat-template: a file, a text or a name replaces the model's template") {
  const TempFolder folder;
  const std::string own = story_with(folder / "own.quipu", kColons),
                    file = write_file(folder / "t.jinja", kColons);
  const auto ask = [](const std::string& model, const Arguments& more) {
    Arguments all = {"chat", "-m", model, "-n", "12", "--seed", "3", "-p", "A dog."};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all);
  };
  const std::string answer = ask(own, {}).out;
  CHECK(!answer.empty());
  CHECK(ask(kStory, {}).out != answer);
  for (const std::string& given : {file, kColons}) {
    const Outcome chosen = ask(kStory, {"--chat-template", given});
    CHECK_MESSAGE(chosen.out == answer, chosen.err);
    CHECK_MESSAGE(chosen.err.find("no chat template") == std::string::npos, chosen.err);
  }
  CHECK(ask(own, {"--chat-template", "plain"}).out == ask(kStory, {}).out);
  CHECK(ask(own, {"--chat-template", "chatml"}).out != answer);
  CHECK(ask(kStory, {"--chat-template-file", file}).out == answer);
  check_one_line(ask(own, {"--chat-template", "chatm"}), 2,
                 "--chat-template is chatm, expected a Jinja file or ");
  check_one_line(ask(own, {"--chat-template", write_file(folder / "bad", "{% for %}")}), 3,
                 "bad: ");
  check_one_line(ask(own, {"--chat-template", "{{ 'nothing' }}"}), 3,
                 "--chat-template: does not show the message of the user");
  // /show and `chaski template` say which one is used; another model has its own.
  const Outcome show = lines({"--chat-template", file}, "/show\n/model " + own + "\n/show\n");
  CHECK_MESSAGE(show.error_says("template: from " + file), show.err);
  CHECK_MESSAGE(show.error_says("template: from the model file"), show.err);
  CHECK(show.error_says("--chat-template does not apply to the new model"));
  CHECK(chaski_run({"template", kStory, "--chat-template", file})
            .out.starts_with(kStory + ": a template from " + file));
}

TEST_CASE("cli/run MODEL PROMPT of a chat model names chaski chat, which answers") {
  const TempFolder folder;
  const std::string model = story_with(folder / "story.quipu", kColons);
  const std::string note =
      "note: chaski run continues the prompt; chaski chat MODEL PROMPT answers";
  const Outcome unnamed = chaski_run({"run", model, "Once upon", "-n", "3"});
  CHECK(unnamed.status == 0);
  CHECK_MESSAGE(unnamed.error_says(note), unnamed.err);
  for (const Arguments& silent : {Arguments{"run", "-m", model, "-p", "Once upon", "-n", "3"},
                                  {"run", "-q", model, "Once upon", "-n", "3"},
                                  {"run", kStory, "Once upon", "-n", "3"}})
    CHECK_FALSE(chaski_run(silent).error_says(note));
}

TEST_CASE("cli/chat without a model says in one line how to get one that answers questions") {
  const std::string line =
      "chaski: note: the built-in model only tells stories; this command gets one that answers "
      "questions: chaski chat -m smollm2\n";
  const Outcome without = chaski_run({"chat", "-p", "Who are you?", "-n", "3"});
  CHECK(without.status == 0);
  CHECK_MESSAGE(without.err.find(line) != std::string::npos, without.err);
  CHECK(without.err.find(line) == without.err.rfind(line));
  CHECK(chaski_run({"chat", "-q", "-p", "Who are you?", "-n", "3"}).err.empty());
  CHECK_FALSE(chaski_run({"chat", "-m", kStory, "-p", "Who?", "-n", "3"}).error_says("smollm2"));
  Screen screen({"chat", "--device", "cpu"}, "xterm");
  screen.until("chaski chat -m smollm2\r\n");
  screen.until("> ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat --lines reads files of Windows, with CR LF and a byte order mark") {
  const Outcome plain = lines({}, "/set n 5\nA dog.\nA cat.\n");
  const Outcome windows = lines({}, "\xef\xbb\xbf/set n 5\r\nA dog.\r\nA cat.\r\n");
  CHECK_MESSAGE(windows.status == 0, windows.err);
  CHECK(windows.out == plain.out);
}

TEST_CASE("cli/chat --lines goes on after a question that does not fit") {
  const TempFolder folder;
  std::string longer;
  for (int i = 0; i < 80; ++i) longer += "a dog ran ";
  const std::string talk = folder / "talk";
  const Outcome outcome =
      lines({"-c", "128"}, "A dog.\n" + longer + "\nA cat.\n/save " + talk + "\n");
  CHECK(outcome.status == 7);
  // No older message would make room for it.
  CHECK_MESSAGE(outcome.error_says("if the model supports it; the question is removed\n"),
                outcome.err);
  CHECK(outcome.out == lines({"-c", "128"}, "A dog.\nA cat.\n").out);
  CHECK_MESSAGE(outcome.error_says("4 messages in " + talk), outcome.err);
  const Outcome shifted =
      lines({"-c", "128", "--context-policy", "shift"}, "A dog.\n" + longer + "\nA cat.\n");
  CHECK(shifted.status == 7);
  CHECK_MESSAGE(shifted.error_says("this message alone does not fit"), shifted.err);
  CHECK(shifted.out == outcome.out);
  const Outcome events = lines({"-c", "128", "--jsonl"}, "A dog.\n" + longer + "\nA cat.\n");
  std::vector<std::string> ends;
  for (const std::string& line : lines_of(events.out)) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] != "text") ends.push_back(event["event"]);
    if (event["event"] == "error") CHECK(event["status"] == 7);
  }
  CHECK(ends == std::vector<std::string>{"result", "error", "result"});
}

TEST_CASE("cli/chat --lines: a note says that the input ends inside a message of several lines") {
  const std::string note = "the input ends before the \"\"\" that ends its last message";
  CHECK(lines({}, "\"\"\"\nA dog.\n/history\n").error_says(note));
  CHECK_FALSE(lines({}, "\"\"\"\nA dog.\n\"\"\"\n").error_says(note));
}

TEST_CASE("cli/chat /save says that JSON cannot hold a byte that is not UTF-8") {
  const TempFolder folder;
  const std::string talk = folder / "talk";
  CHECK(lines({}, "A\xe9.\n/save " + talk + "\n").error_says("is saved as U+FFFD"));
  CHECK_FALSE(lines({}, "A dog.\n/save " + folder / "other\n").error_says("U+FFFD"));
}
