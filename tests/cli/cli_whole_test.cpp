// Nothing of an answer or its prompt is lost without a word: answers that are cut off, texts that
// are joined, and caches that cannot be written.
#include <nlohmann/json.hpp>

#include "tests/kit/program.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

constexpr int kIncomplete = 9;
const std::string kLongWord = "[a-z]{500,}";

// A run of the bundled model without a drafter, whose text does not depend on chance.
Arguments once(const Arguments& more) {
  Arguments all = {"run", "-m", kStory, "--seed", "3", "-n", "12"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::string text_of_run(const Arguments& more, const std::string& piped = "") {
  const Outcome outcome = chaski_run(once(more), piped);
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  return outcome.out;
}

Outcome shell_line(const std::string& line) {
  return Program({"-c", line}, "", "", "/bin/bash").wait();
}

}  // namespace

TEST_CASE("whole/an answer that -n or the context cuts off is named, and -q hides the note") {
  const std::string cut = "chaski: note: the answer is cut off by -n after 12 tokens\n";
  const Arguments ask = {"chat", "-m", kStory, "--seed", "3", "-n", "12", "-p", "A dog."};
  for (const Arguments& command : {once({"-p", "Once"}), ask}) {
    const Outcome said = chaski_run(command);
    CHECK_MESSAGE(said.status == 0, said.err);
    CHECK_MESSAGE(said.error_says(cut), said.err);
    Arguments more = command;
    more.push_back("-q");
    CHECK(chaski_run(more).err.empty());
    more.back() = "--json";
    const Outcome as_json = chaski_run(more);
    CHECK(as_json.error_says(cut));
    CHECK(json::parse(as_json.out)["finish"] == "length");
    CHECK(json::parse(as_json.out)["complete"] == true);
  }
  const Outcome full = chaski_run(once({"-p", "Once", "-c", "16", "-n", "-1"}));
  CHECK_MESSAGE(full.error_says("note: the answer is cut off because the context of 16 tokens is "
                                "full: --ctx N gives a larger context"),
                full.err);
  CHECK(full.status == 0);
  CHECK(chaski_run(once({"-p", "Once", "--beam", "2"})).error_says(cut));
  CHECK(chaski_run(once({"-p", "Once", "--answers", "2"}))
            .error_says("note: 2 of 2 answers are cut off by -n after 12 tokens\n"));
  CHECK(chaski_run(once({"-p", "Once", "--best-of", "2"})).error_says(cut));
  // Nothing is cut off if no answer was asked for, and by a text of --stop or the model's own end.
  for (const Arguments& more :
       {Arguments{"-n", "0"}, Arguments{"-n", "400"}, Arguments{"-n", "400", "--stop", "a"}}) {
    Arguments all = {"-p", "Once"};
    all.insert(all.end(), more.begin(), more.end());
    CHECK_FALSE(chaski_run(once(all)).error_says("cut off"));
  }
}

TEST_CASE("whole/an answer that does not satisfy its grammar ends with status 9") {
  const TempFolder folder;
  const std::string schema = R"({"type": "object", "properties": {"name": {"type": "string",
      "maxLength": 9}}, "required": ["name"]})";
  const auto ran = [](Arguments more) {
    more.insert(more.begin(), {"-p", "Once"});
    return chaski_run(once(more));
  };
  for (const auto& [flag, value] :
       {std::pair<std::string, std::string>{"--json-schema", schema},
        {"--regex", kLongWord},
        {"--grammar", "root ::= \"once upon a time\" [a-z] \", there was a little old house\""}}) {
    CAPTURE(flag);
    const Outcome cut = ran({flag, value, "-n", "4"});
    CHECK(cut.status == kIncomplete);
    CHECK(!cut.out.empty());
    CHECK_MESSAGE(cut.error_says("note: the answer is cut off by -n after 4 tokens, before " +
                                 flag + " is satisfied\n"),
                  cut.err);
    const Outcome quiet = ran({flag, value, "-n", "4", "-q", "--json"});
    CHECK(quiet.status == kIncomplete);
    CHECK(quiet.err.empty());
    CHECK(json::parse(quiet.out)["complete"] == false);
  }
  const Outcome whole = ran({"--json-schema", schema, "-n", "60", "--json"});
  CHECK_MESSAGE(whole.status == 0, whole.err);
  CHECK(json::parse(whole.out)["complete"] == true);
  // Cut off, but what is there satisfies the grammar.
  const Outcome enough = ran({"--regex", "[a-z]+", "-n", "3"});
  CHECK(enough.status == 0);
  CHECK_MESSAGE(enough.error_says("cut off by -n after 3 tokens\n"), enough.err);
  const Outcome at_stop = ran({"--regex", kLongWord, "--stop", "n"});
  CHECK(at_stop.status == kIncomplete);
  CHECK_MESSAGE(at_stop.error_says("the answer is cut off by a --stop text, before --regex"),
                at_stop.err);
  CHECK(ran({"--regex", kLongWord, "-n", "-1", "-c", "16"}).status == kIncomplete);
  for (const char* several : {"--answers", "--best-of"})
    CHECK(ran({"--regex", kLongWord, several, "2"}).status == kIncomplete);
  const Arguments stored = {"--regex", kLongWord, "--answer-cache", folder / "kept"};
  CHECK(ran(stored).status == kIncomplete);
  const Outcome again = ran(stored);
  CHECK(again.status == kIncomplete);
  CHECK_MESSAGE(again.error_says("from --answer-cache"), again.err);
}

TEST_CASE("whole/chat: an answer that does not satisfy its grammar ends with status 9") {
  const auto asked = [](Arguments more, const std::string& piped = "") {
    more.insert(more.begin(), {"chat", "-m", kStory, "--seed", "3", "-n", "12"});
    return chaski_run(more, piped);
  };
  const Outcome one = asked({"--regex", kLongWord, "-p", "A dog."});
  CHECK(one.status == kIncomplete);
  CHECK_MESSAGE(one.error_says("cut off by -n after 12 tokens, before --regex is satisfied\n"),
                one.err);
  const Outcome lines = asked({"--regex", kLongWord, "--lines"}, "A dog.\nA cat.\n");
  CHECK(lines.status == kIncomplete);
  CHECK(lines_of(lines.out).size() == 2);
  CHECK(asked({"--regex", "(yes|no)", "--lines"}, "Is it red?\nIs it big?\n").status == 0);
  // The model has no chat template: a line "User:" begins the next question.
  const Outcome stopped = asked({"--grammar", "root ::= \"a\\nUser: b\"", "-p", "A dog."});
  CHECK(stopped.status == kIncomplete);
  CHECK_MESSAGE(stopped.error_says("the answer is cut off by a stop text of the chat template, "
                                   "before --grammar is satisfied\n"),
                stopped.err);
}

TEST_CASE("whole/run joins -p, -f and a pipe as chat does") {
  const TempFolder folder;
  const std::string file = write_file(folder / "file", "A cat.\n");
  const std::string both = text_of_run({"-p", "Sum up:\n\nA dog."});
  CHECK(both != text_of_run({"-p", "Sum up:"}));
  CHECK(text_of_run({"-p", "Sum up:"}, "A dog.\n") == both);
  CHECK(text_of_run({"-p", "Sum up:", "-f", "-"}, "A dog.\n") == both);
  CHECK(text_of_run({"-p", "A dog.", "--pipe", "first"}, "Sum up:\n") == both);
  CHECK(text_of_run({"-p", "Sum up:\n\nA dog.", "--pipe", "no"}, "A cat.\n") == both);
  const std::string three = text_of_run({"-p", "Sum up:\n\nA cat.\n\nA dog."});
  CHECK(text_of_run({"-p", "Sum up:", "-f", file}, "A dog.\n") == three);
  CHECK(text_of_run({"-f", file}, "A dog.") == text_of_run({"-p", "A cat.\n\nA dog."}));
  CHECK(text_of_run({"-f", file}) == text_of_run({"-p", "A cat."}));
  CHECK(text_of_run({"-f", "-"}, "A cat.\r\n") == text_of_run({"-p", "A cat."}));
  // Only the last line end is dropped.
  CHECK(text_of_run({}, "Once upon a time\n") == text_of_run({"-p", "Once upon a time"}));
  CHECK(text_of_run({}, "Once upon a time\n\n") == text_of_run({"-p", "Once upon a time\n"}));
  // A pipe that is empty adds nothing, and the bundled model then begins its own story.
  CHECK(text_of_run({"-p", "Sum up:"}, "\n") == text_of_run({"-p", "Sum up:"}));
  CHECK(chaski_run({"run", "--seed", "3", "-n", "3"}, "\n").out.starts_with("Once upon a time"));
  check_one_line(chaski_run(once({"--pipe", "no"}), "A dog."), 2, "no text given");
  check_one_line(chaski_run(once({"-p", "a", "-f", folder / "none"})), 5, "none: cannot be");
  check_one_line(chaski_run(once({"-p", "a", "--pipe", "middle"})), 2,
                 "--pipe is \"middle\", expected last, first or no");
  // Tokens of a text are those of its every byte.
  CHECK(chaski_run({"tokenize", "--ids"}, "A dog.\n").out !=
        chaski_run({"tokenize", "--ids"}, "A dog.").out);
}

TEST_CASE("whole/chat takes --pipe, and -p with -f") {
  const TempFolder folder;
  const std::string file = write_file(folder / "file", "A cat.\n");
  const auto asked = [](Arguments more, const std::string& piped = "") {
    more.insert(more.begin(), {"chat", "-q", "-m", kStory, "--seed", "3", "-n", "12"});
    return chaski_run(more, piped).out;
  };
  const std::string both = asked({"-p", "A dog.\n\nA cat."});
  CHECK(asked({"-p", "A dog.", "-f", file}) == both);
  CHECK(asked({"-p", "A cat.", "--pipe", "first"}, "A dog.\n") == both);
  CHECK(asked({"-p", "A dog.\n\nA cat.", "--pipe", "no"}, "A bird.\n") == both);
}

TEST_CASE("whole/a pipe that stays open is named") {
  const std::string run = " | " + chaski_binary() + " run -m " + kStory + " -p Once -n 1 ";
  const std::string note = "note: waiting for standard input, which is joined with -p and -f";
  const Outcome late = shell_line("sleep 2.5" + run);
  CHECK_MESSAGE(late.status == 0, late.err);
  CHECK_MESSAGE(late.error_says(note), late.err);
  CHECK_FALSE(shell_line("sleep 2.5" + run + "--pipe no").error_says(note));
  // There is no standard input at all.
  const Outcome closed = shell_line(chaski_binary() + " run -q -p Once -n 3 --seed 3 <&-");
  CHECK_MESSAGE(closed.status == 0, closed.err);
  CHECK(closed.out == chaski_run({"run", "-q", "-p", "Once", "-n", "3", "--seed", "3"}).out);
}

TEST_CASE("whole/a cache that cannot be written costs no answer") {
  const TempFolder folder;
  const std::string text = text_of_run({"-p", "Once upon a time"});
  const auto with = [&](const Arguments& more, const std::string& fault = "") {
    Arguments all = once({"-p", "Once upon a time"});
    all.insert(all.end(), more.begin(), more.end());
    if (fault.empty()) return chaski_run(all);
    const std::string trouble = "export LD_PRELOAD=" + faults_shim() + " " + fault + "; exec ";
    all.insert(all.begin(), {"-c", trouble + "\"$0\" \"$@\"", chaski_binary()});
    return Program(all, "", "", "/bin/bash").wait();
  };
  const auto check = [&](const Outcome& outcome, const std::string& says) {
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK(outcome.out == text);
    CHECK_MESSAGE(!outcome.error_says("chaski: error: "), outcome.err);
    CHECK_MESSAGE(outcome.error_says(says), outcome.err);
    CHECK_MESSAGE(!outcome.error_says(".tmp"), outcome.err);
  };
  const std::string cache = folder / "prompt.kv", answers = folder / "answers";
  check(with({"--cache", folder / "no/prompt.kv"}), ": the prompt is not stored\n");
  // Before the answer, and with --quiet too.
  for (const std::string flag : {"--cache /sys/prompt.kv", "--answer-cache /sys/answers"}) {
    const std::string both = shell_line(chaski_binary() + " run -q -m " + kStory +
                                        " --seed 3 -n 9 -p Once " + flag + " 2>&1")
                                 .out;
    CHECK_MESSAGE(both.starts_with("chaski: note: /sys/"), both);
  }
  check(with({"--cache", "/sys/prompt.kv"}), ": the prompt is not stored\n");
  check(with({"--answer-cache", "/sys/answers"}), "/sys/answers: cannot be created as a folder: ");
  check(with({"--answer-cache", "/sys"}), "/sys/");
  write_file(folder / "file", "x");
  check(with({"--answer-cache", folder / "file"}), ": the answer is not stored\n");
  if (!can_preload()) return;
  const std::string full = "FAULT_CALL=pwrite:1:28 FAULT_FOR_EVER=1";
  check(with({"--cache", cache}, full), cache + ": no space left on device (wrote 0 bytes)");
  check(with({"--answer-cache", answers}, full), "no space left on device");
  CHECK(!have(cache));
  CHECK(files_in(answers) == 0);
  check(with({"--cache", cache}, "FAULT_CALL=fsync:1:5"), ": the prompt is not stored\n");
  CHECK(files_in(folder.path) == 2);  // file, answers
}
