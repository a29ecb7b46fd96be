// Inputs that the libraries below the command line would accept: texts that are not quite numbers,
// empty names, endless files, and names with terminal escape sequences.
#include <sys/stat.h>

#include "tests/kit/program.h"

using namespace chaski::test;

namespace {

// Starts chaski with a shell; `how` redirects its streams.
int status_of(const std::string& arguments, const std::string& how) {
  const std::string limit = has_address_sanitizer() ? "" : "ulimit -v 4000000; ",
                    command = limit + chaski_binary() + " " + arguments + " " + how;
  return WEXITSTATUS(std::system(("timeout 60 bash -c '" + command + "'").c_str()));
}

}  // namespace

TEST_CASE("cli/numbers are decimal, and the whole text is a number") {
  const std::vector<std::pair<std::string, std::string>> flags = {
      {"--temp", "--temp"},   {"--top-k", "--top-k"},
      {"--top-p", "--top-p"}, {"--min-p", "--min-p"},
      {"--seed", "--seed"},   {"--repeat-penalty", "--repeat-penalty"},
      {"-n", "--tokens"},     {"-t", "--threads"},
      {"-c", "--ctx"},        {"--gpu-layers", "--gpu-layers"}};
  for (const auto& [flag, name] : flags)
    for (const char* value :
         {"", " ", "0x1", "1x", "1 ", " 1", "nan", "inf", "-inf", "1e999", "1,5"}) {
      CAPTURE(flag);
      CAPTURE(value);
      check_one_line(chaski_run({"run", "-p", "a", "-n", "1", flag, value}), 2, name);
    }
  // CLI11 alone would read 010 as 8 and 0b101 as 5.
  CHECK(chaski_run({"run", "-p", "a", "-n", "010", "--seed", "1", "--ignore-end", "--json"})
            .out.find("\"answer_tokens\":10,") != std::string::npos);
  check_one_line(chaski_run({"run", "-p", "a", "-n", "0b101"}), 2, "--tokens");
  check_one_line(chaski_run({"run", "-p", "a", "--seed", "-2"}), 2, "--seed");
  check_one_line(chaski_run({"run", "-p", "a", "--draft-len", "", "--draft", "x"}), 2,
                 "--draft-len");
  check_one_line(chaski_run({"tokenize", "--decode", "0x10"}), 2, "--decode");
  check_one_line(chaski_run({"tokenize", "--decode", ""}), 2, "--decode");
  check_one_line(chaski_run({"quantize", "a", "b", "--keep-above", ""}), 2, "--keep-above");
  check_one_line(chaski_run({"quantize", "a", "b", "--keep-above", "nan"}), 2, "--keep-above");
  check_one_line(chaski_run({"bench", "-r", ""}), 2, "--repetitions");
  check_one_line(chaski_run({"bench", "-n", "0x1"}), 2, "--tokens");
}

TEST_CASE("cli/an empty name is refused") {
  const std::vector<std::pair<Arguments, std::string>> wrong = {
      {{"run", "-p", "a", "-m", ""}, "--model"},
      {{"run", "-p", "a", "--draft", ""}, "--draft"},
      {{"run", "-p", "a", "--tokenizer", ""}, "--tokenizer"},
      {{"run", "-f", ""}, "--file"},
      {{"chat", "-m", ""}, "--model"},
      {{"tokenize", "-p", "a", "-m", ""}, "--model"},
      {{"bench", "-m", ""}, "--model"},
      {{"bench", "--shape", ""}, "--shape"},
      {{"inspect", ""}, "FILE"},
      {{"convert", "", "b"}, "IN"},
      {{"convert", "a", ""}, "OUT"},
      {{"quantize", "", "b"}, "IN"},
      {{"quantize", "a", ""}, "OUT"},
  };
  for (const auto& [arguments, name] : wrong) {
    CAPTURE(arguments[0]);
    CAPTURE(name);
    check_one_line(chaski_run(arguments), 2, name + " is \"\", expected");
  }
}

TEST_CASE("cli/a pipe or a device is refused as a model, without waiting for it") {
  const TempFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const std::string& model : {folder / "pipe", std::string("/dev/zero")})
    for (const char* command : {"run -p a -m", "chat --lines -m", "inspect", "tokenize -p a -m",
                                "bench -m", "convert", "quantize"}) {
      const bool writes = *command == 'c' || *command == 'q';
      const std::string out =
          writes && std::string(command) != "chat --lines -m" ? folder / "out.quipu" : "";
      CAPTURE(command);
      CHECK(status_of(command + (" " + model + " " + out), "</dev/null >/dev/null 2>&1") == 3);
    }
  CHECK(status_of("run -p a --draft " + (folder / "pipe"), "</dev/null >/dev/null 2>&1") == 3);
}

TEST_CASE("cli/endless text is refused before memory is full") {
  const Outcome device = chaski_run({"tokenize", "-f", "/dev/zero"});
  check_one_line(device, 5, "/dev/zero has more than 67108864 bytes");
  CHECK(status_of("tokenize", "</dev/zero 2>/dev/null") == 5);
  CHECK(status_of("chat", "</dev/zero 2>/dev/null") == 5);
  const TempFolder folder;
  std::ofstream(folder / "long") << "";
  std::filesystem::resize_file(folder / "long", 100'000'000);
  check_one_line(chaski_run({"run", "-f", folder / "long"}), 5,
                 "has 100000000 bytes of text, expected at most 67108864");
}

TEST_CASE("cli/every command whose standard output fails says so") {
  for (const char* arguments :
       {"--help", "--version", "run --help", "tokenize -p a", "tokenize --decode 5",
        "run -p a -n 4", "run -p a -n 4 --json", "inspect models/bundled/story.quipu",
        "inspect models/bundled/story.quipu --json", "bench -p 1 -n 1 -r 1"}) {
    CAPTURE(arguments);
    CHECK(status_of(arguments, "</dev/null 2>/dev/null >/dev/full") == 5);
    CHECK(status_of(arguments, "</dev/null 2>/dev/null >&-") == 5);
  }
}

TEST_CASE("cli/every command whose standard input is closed says so") {
  for (const char* arguments : {"run", "chat", "chat --lines", "tokenize"}) {
    CAPTURE(arguments);
    CHECK(status_of(arguments, "<&- >/dev/null 2>/dev/null") == 5);
  }
}

TEST_CASE("cli/control characters of a name never reach a terminal") {
  const TempFolder folder;
  const std::string name = folder / "a\x1b]0;x\x07\nchaski: b\x9b";
  const auto clean = [](const std::string& line) {
    return std::none_of(line.begin(), line.end(), [](unsigned char c) {
      return c < 0x20 || c == 0x7f || (c >= 0x80 && c < 0xa0);
    });
  };
  std::ofstream(name) << "this is no model at all, but a letter";
  for (const Arguments& arguments : std::vector<Arguments>{{"run", "-p", "a", "-m", name},
                                                           {"run", "-p", "a", "-m", name + "x"},
                                                           {"run", "-f", name + "x"},
                                                           {"inspect", name},
                                                           {"convert", name, folder / "b"},
                                                           {"quantize", name, folder / "b"},
                                                           {"run", "--device", name},
                                                           {"run", name},
                                                           {"run", "--temp", name},
                                                           {name}}) {
    const Outcome outcome = chaski_run(arguments);
    CHECK(outcome.status != 0);
    CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
    CHECK_MESSAGE(clean(outcome.err.substr(0, outcome.err.size() - 1)), outcome.err);
  }
  // Notices, too: this model is valid.
  const std::string model = folder / "sound\x1b[31m\n.gguf";
  CHECK(chaski_run({"convert", kStory, folder / "story.gguf"}).status == 0);
  std::filesystem::rename(folder / "story.gguf", model);
  const Outcome run = chaski_run({"run", "-p", "Once", "-n", "2", "--seed", "1", "-m", model});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK_MESSAGE(run.error_says("sound\\x1b[31m\\n.gguf: GGUF v3"), run.err);
  CHECK(run.err.find('\x1b') == std::string::npos);
}
