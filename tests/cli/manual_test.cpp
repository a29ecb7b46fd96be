// --help and the man pages: they are complete, have no odd words, and their examples work.
#include <set>

#include "engine/measure/kv_loss.h"
#include "engine/quantize/quantize.h"
#include "ggml-like-tensor/kv_formats.h"
#include "tests/kit/program.h"

using namespace chaski::test;
namespace fs = std::filesystem;

namespace {

// The first words of the rows below a heading, such as the commands.
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

// Runs bash in a folder with the files that examples name and with the tested chaski in its PATH.
Outcome in_folder(const TempFolder& folder, const std::string& line) {
  return Program({"-c", "set -o pipefail; cd " + folder.path +
                            " && export HOME=$PWD && PATH=$PWD/bin:$PATH && " + line},
                 "Hello\n", "", "/bin/bash")
      .wait();
}

}  // namespace

TEST_CASE("manual/the help of every command has three examples and no words of CLI11") {
  CHECK(commands().size() >= 12);
  for (const std::string& command : commands()) {
    CAPTURE(command);
    const Outcome help = chaski_run({command, "--help"});
    CHECK(help.status == 0);
    CHECK(help.err.empty());
    CHECK(help.out == chaski_run({"help", command}).out);
    CHECK(examples_of(help.out).size() == 3);
    for (const char* word :
         {"Excludes", "OPTIONS", "REQUIRED", "Positionals", "TEXT:", " ...\n", "default {}"})
      CHECK_MESSAGE(!contains(help.out, word), word);
    for (const std::string& line : lines_of(help.out)) CHECK_MESSAGE(line.size() <= 100, line);
  }
  const std::string run = chaski_run({"run", "--help"}).out;
  for (const char* flag : {"(default 0.8)", "(default 40)", "(default mmap)", "(default f16)"})
    CHECK_MESSAGE(contains(run, flag), flag);
  // --quiet names what is still told.
  const auto quiet = [](const char* command) {
    std::string text = chaski_run({command, "--help"}).out;
    text = text.substr(text.find("print errors"));
    text.resize(text.find("\n  -"));
    for (size_t at; (at = text.find("\n")) != text.npos;)
      text.replace(at, text.find_first_not_of(" \n", at) - at, " ");
    return text;
  };
  const std::string note = "print errors, but no notes";
  CHECK(quiet("run") == note + " except that --cache or --answer-cache cannot be written");
  CHECK(quiet("chat") == note + " except that --answer-cache cannot be written");
  CHECK(quiet("serve") == note + " except that --cache cannot be written");
  CHECK(quiet("eval") == note);
  const std::string help = chaski_run({"--help"}).out;
  CHECK(help == chaski_run({"help"}).out);
  for (const char* word : {"CHASKI_CONFIG", "CHASKI_MODELS", "NO_COLOR", "Exit status:"})
    CHECK_MESSAGE(contains(help, word), word);
}

TEST_CASE("manual/chaski help formats lists every format that can be chosen, its own six first") {
  const Outcome help = chaski_run({"help", "formats"});
  REQUIRE_MESSAGE(help.status == 0, help.err);
  CHECK(help.out == chaski_run({"--help", "formats"}).out);
  const Arguments own = words_below(help.out, "chaski's own formats:"),
                  gguf =
                      words_below(help.out, "GGUF's formats, for files that other programs read:"),
                  special = words_below(help.out, "Special formats:");
  CHECK(own == Arguments{"q2", "q3", "q4", "q5", "q6", "q8"});
  CHECK(help.out.find("chaski's own formats:") < help.out.find("GGUF's formats"));
  CHECK(help.out.find("GGUF's formats") < help.out.find("Special formats:"));
  const Outcome wrong = chaski_run({"quantize", "a", "b", "q77"});
  Arguments all = own;
  all.insert(all.end(), gguf.begin(), gguf.end());
  all.insert(all.end(), special.begin(), special.end());
  const std::set<std::string> listed(all.begin(), all.end());
  CHECK(listed.size() == all.size());
  const std::vector<std::string> types = chaski::quantize_types();
  CHECK(listed == std::set<std::string>(types.begin(), types.end()));
  for (const std::string& format : all) {
    CHECK_MESSAGE(wrong.error_says(format), wrong.err);
    CHECK_MESSAGE(contains(help.out, " bits: "), format);
  }
  const std::string page = chaski_run({"--man"}).out;
  for (const std::string& format : all)
    CHECK_MESSAGE(contains(page, ".B " + format + "\n"), format);
  CHECK(contains(chaski_run({"--help"}).out, "\n  formats "));
  // The help of quantize explains the own formats only.
  const std::string quantize = chaski_run({"quantize", "--help"}).out;
  CHECK(words_below(quantize, "Formats:") == own);
}

TEST_CASE("manual/every format of the KV cache is explained where it is listed") {
  const std::string run = chaski_run({"run", "--help"}).out;
  Arguments all;
  for (const chaski::KvType& type : chaski::kKvTypes) all.push_back(type.name);
  CHECK(words_below(run, "KV cache formats:") == all);
  for (const chaski::KvType& type : chaski::kKvTypes) {
    if (chaski::kv_loss(type.format).empty()) continue;
    const std::string format = std::string("\n  ") + type.name + " ";
    const size_t at = run.find(format);
    REQUIRE(at != run.npos);
    size_t next = at + 1;  // the next row; a continued one begins with more spaces
    do next = run.find("\n  ", next + 1);
    while (next != run.npos && run[next + 3] == ' ');
    CHECK_MESSAGE(run.find("KL", at) < next, format);
  }
}

TEST_CASE("manual/the examples work") {
  const TempFolder folder;
  fs::create_directory(folder / "bin");
  fs::create_symlink(fs::absolute(chaski_binary()), folder / "bin/chaski");
  REQUIRE(chaski_run({"convert", kStory, folder / "model.gguf", "-q"}).status == 0);
  for (const char* copy : {"model.quipu", "small.quipu"}) fs::copy_file(kStory, folder / copy);
  fs::create_symlink(fs::absolute(golden("models/llama_f16")), folder / "folder");
  const std::string story = chaski_run({"run", "-n", "300", "--seed", "1", "-q"}).out;
  write_file(folder / "letter.txt", story.substr(0, 300));
  std::string book;
  while (book.size() < 6000) book += story + "\n";
  write_file(folder / "book.txt", book);
  write_file(
      folder / "schema.json",
      R"({"type": "object", "properties": {"name": {"enum": ["Tim", "Sam"]}}, "required": ["name"]})");
  write_file(folder / "requests.jsonl", R"({"prompt": "Tim", "max_tokens": 4})");
  write_file(folder / "chat.json", R"([{"role": "user", "content": "Hello"}])");
  for (const std::string& command : commands())
    for (const std::string& line : examples_of(chaski_run({command, "--help"}).out)) {
      CAPTURE(line);
      // pull_test.cpp and load_test_test.cpp have servers for these.
      if (line.starts_with("chaski pull") || line.starts_with("chaski load-test")) continue;
      const Outcome outcome = in_folder(folder, line);
      CHECK_MESSAGE(outcome.status == 0, outcome.err);
    }
  for (const std::string& line : examples_of(chaski_run({"--help"}).out)) {
    CAPTURE(line);
    CHECK(in_folder(folder, line).status == 0);
  }
}

TEST_CASE("manual/man(1) shows the man pages without a warning") {
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
           {"--json-schema FILE", R"(\n, \t, \r, \\, \" and \' in -p)", "^ (length"})
        if (command == "run") CHECK_MESSAGE(contains(shown.out, part), part);
      if (command.empty()) CHECK(contains(shown.out, "CHASKI_CONFIG"));
    }
    if (has_mandoc) {
      const Outcome lint = shell("mandoc -Tlint -Wwarning " + file);
      CHECK_MESSAGE(lint.status == 0, lint.out);
    }
  }
}
