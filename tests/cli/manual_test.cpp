// What --help says and the man pages show: that it is whole, reads well, and that its examples
// work as they stand there.
#include "tests/kit/program.h"

using namespace chaski::test;
namespace fs = std::filesystem;

namespace {

// The rows below a heading, each its first word: commands, say.
std::vector<std::string> words_below(const std::string& help, const std::string& heading) {
  std::vector<std::string> words;
  bool inside = false;
  for (const std::string& line : lines_of(help)) {
    if (line.empty()) inside = false;
    if (inside && line.size() > 2 && line[2] != ' ')
      words.push_back(line.substr(2, line.find(' ', 2) - 2));
    if (line == heading) inside = true;
  }
  return words;
}

std::vector<std::string> commands() { return words_below(chaski_run({"--help"}).out, "Commands:"); }

std::vector<std::string> examples_of(const std::string& help) {
  std::vector<std::string> lines;
  const size_t at = help.find("\nExamples:\n");
  REQUIRE(at != std::string::npos);
  for (const std::string& line : lines_of(help.substr(at)))
    if (line.starts_with("    ")) lines.push_back(line.substr(4));
  return lines;
}

// bash in a folder where the files are that examples speak of, and chaski is the one to be tested.
Outcome in_folder(const TempFolder& folder, const std::string& line) {
  return Program({"-c", "set -o pipefail; cd " + folder.path +
                            " && export HOME=$PWD && PATH=$PWD/bin:$PATH && " + line},
                 "Hello\n", "", "/bin/bash")
      .wait();
}

}  // namespace

TEST_CASE("manual/the help of every command: three examples, no words of the library") {
  CHECK(commands().size() >= 12);
  for (const std::string& command : commands()) {
    CAPTURE(command);
    const Outcome help = chaski_run({command, "--help"});
    CHECK(help.status == 0);
    CHECK(help.err.empty());
    CHECK(help.out == chaski_run({"help", command}).out);
    CHECK(examples_of(help.out).size() == 3);
    for (const char* word : {"Excludes", "OPTIONS", "REQUIRED", "Positionals", "TEXT:", " ...\n"})
      CHECK_MESSAGE(!contains(help.out, word), word);
    for (const std::string& line : lines_of(help.out)) CHECK_MESSAGE(line.size() <= 100, line);
  }
  const std::string help = chaski_run({"--help"}).out;
  CHECK(help == chaski_run({"help"}).out);
  for (const char* word : {"CHASKI_CONFIG", "CHASKI_MODELS", "NO_COLOR", "Exit status:"})
    CHECK_MESSAGE(contains(help, word), word);
}

TEST_CASE("manual/every format that can be chosen is explained where it is listed") {
  const std::string quantize = chaski_run({"quantize", "--help"}).out;
  const Outcome wrong = chaski_run({"quantize", "a", "b", "q77"});
  for (const std::string& format : words_below(quantize, "Formats:"))
    CHECK_MESSAGE(wrong.error_says(format), wrong.err);
  CHECK(words_below(quantize, "Formats:").size() == 24);
  const std::string run = chaski_run({"run", "--help"}).out;
  CHECK(words_below(run, "Formats of keys and values:") ==
        Arguments{"f32", "f16", "f8", "q8", "q4_0"});
}

TEST_CASE("manual/the examples work") {
  const TempFolder folder;
  fs::create_directory(folder / "bin");
  fs::create_symlink(fs::absolute(chaski_binary()), folder / "bin/chaski");
  REQUIRE(chaski_run({"convert", kStory, folder / "model.gguf", "-q"}).status == 0);
  for (const char* copy : {"model.quipu", "small.quipu"}) fs::copy_file(kStory, folder / copy);
  fs::create_symlink(fs::absolute(golden("models/llama_f16")), folder / "folder");
  REQUIRE(chaski_run({"quantize", kStory, folder / "q4_0.quipu", "--type", "q4_0", "--fast",
                      "--keep-above", "1", "-q"})
              .status == 0);
  const std::string story = chaski_run({"run", "-n", "300", "--seed", "1", "-q"}).out;
  write_file(folder / "letter.txt", story.substr(0, 300));
  std::string book;
  while (book.size() < 6000) book += story + "\n";
  write_file(folder / "book.txt", book);
  write_file(
      folder / "schema.json",
      R"({"type": "object", "properties": {"name": {"enum": ["Tim", "Sam"]}}, "required": ["name"]})");
  write_file(folder / "chat.json", R"([{"role": "user", "content": "Hello"}])");
  for (const std::string& command : commands())
    for (const std::string& line : examples_of(chaski_run({command, "--help"}).out)) {
      CAPTURE(line);
      if (line.starts_with("chaski pull")) continue;  // has a server in pull_test.cpp
      const Outcome outcome = in_folder(folder, line);
      CHECK_MESSAGE(outcome.status == 0, outcome.err);
    }
  for (const std::string& line : examples_of(chaski_run({"--help"}).out)) {
    CAPTURE(line);
    CHECK(in_folder(folder, line).status == 0);
  }
}

TEST_CASE("manual/man pages are what man(1) takes without a warning") {
  const TempFolder folder;
  Arguments pages = {""};
  for (const std::string& command : commands()) pages.push_back(command);
  const bool has_man = std::system("command -v man >/dev/null 2>&1") == 0,
             has_mandoc = std::system("command -v mandoc >/dev/null 2>&1") == 0;
  if (!has_man && !has_mandoc) std::fprintf(stderr, "SKIPPED: neither man nor mandoc is there\n");
  for (const std::string& command : pages) {
    CAPTURE(command);
    const Outcome page =
        chaski_run(command.empty() ? Arguments{"--man"} : Arguments{command, "--man"});
    REQUIRE(page.status == 0);
    const std::string file = write_file(folder / ("chaski" + command + ".1"), page.out);
    const auto shell = [&](const std::string& line) {
      return Program({"-c", line}, "", "", "/bin/sh").wait();
    };
    if (has_man) {
      const Outcome shown = shell("MANWIDTH=100 LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l " + file);
      CHECK(shown.status == 0);
      CHECK_MESSAGE(shown.err.empty(), shown.err);
      CHECK_MESSAGE(
          contains(shown.out, "chaski " + (command.empty() ? "COMMAND" : command) + " [FLAG...]"),
          shown.out);
      for (const char* part :
           {"--json-schema FILE", R"(\n, \t, \r, \\, \" and \' in -p)", "^ (its"})
        if (command == "run") CHECK_MESSAGE(contains(shown.out, part), part);
      if (command.empty()) CHECK(contains(shown.out, "CHASKI_CONFIG"));
    }
    if (has_mandoc) {
      const Outcome lint = shell("mandoc -Tlint -Wwarning " + file);
      CHECK_MESSAGE(lint.status == 0, lint.out);
    }
  }
}
