// The config file with the real program: the command line overrides it, and an error in it is
// reported with its line.
#include "tests/kit/program.h"

using namespace chaski::test;

namespace {

class Config {
 public:
  explicit Config(const std::string& text) {
    std::filesystem::create_directory(folder_ / "chaski");
    write_file(file(), text);
    setenv("XDG_CONFIG_HOME", folder_.path.c_str(), 1);
  }
  ~Config() { setenv("XDG_CONFIG_HOME", before_.c_str(), 1); }
  std::string file() const { return folder_ / "chaski/config.toml"; }

 private:
  const TempFolder folder_;
  const std::string before_ = std::getenv("XDG_CONFIG_HOME");
};

std::string text_of(const Arguments& more, const std::string& command = "run") {
  Arguments all = {command, "-p", "Once upon a time"};
  all.insert(all.end(), more.begin(), more.end());
  const Outcome outcome = chaski_run(all);
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  return outcome.out;
}

}  // namespace

TEST_CASE(
    "config/priority: command line, a model's table, a command's table, the top of the file") {
  const auto typed = [](const char* tokens) { return text_of({"-s", "7", "-n", tokens}); };
  const std::string two = typed("2"), three = typed("3"), four = typed("4"), five = typed("5");
  REQUIRE(two != three);
  {
    const Config config("seed = 7\ntokens = 5\n");
    CHECK(text_of({}) == five);
    CHECK(text_of({"-n", "3"}) == three);
    CHECK(text_of({"--n-predict=3"}) == three);
  }
  {
    const Config config("seed = 7\ntokens = 5\n[run]\ntokens = 4\n[chat]\ntokens = 1\n");
    CHECK(text_of({}) == four);
    CHECK(text_of({"-n", "2"}) == two);
  }
  const Config config(
      "seed = 7\n[models.\"STORY*\"]\ntokens = 3\n[run]\ntokens = 4\n"
      "[models.bundled]\ntokens = 5\n[models.\"*.quipu\"]\ntokens = 2\n");
  CHECK(text_of({"-m", kStory}) == two);  // the later of two that match
  CHECK(text_of({}) == five);
  CHECK(text_of({"-m", kStory, "-n", "4"}) == four);
}

TEST_CASE("config/the file can set every kind of flag") {
  {
    const Config config(
        "model = \"" + std::filesystem::absolute(kStory).string() +
        "\"\nctx = \"256\"\ntemp = 0\nquiet = true\nignore-end = false\ntokens = 20\n"
        "stop = [\"girl\", \"boy\", \"One\"]\nverbose = true\n[bench]\nkv = [\"f16\", \"q8\"]\n");
    const Outcome run = chaski_run({"run", "-p", "Once upon a time"});
    CHECK(run.status == 0);
    CHECK_MESSAGE(run.err.empty(), run.err);
    CHECK(run.out.find("little") != std::string::npos);
    CHECK(run.out.find("girl") == std::string::npos);
  }
  {
    const Config config("verbose = true\ntokens = 1\n[run]\nthreads = 1\n");
    const Outcome run = chaski_run({"run", "-p", "a"});
    CHECK_MESSAGE(
        run.error_says("note: from " + config.file() + ": --threads 1 --tokens 1 --verbose\n"),
        run.err);
    CHECK(!chaski_run({"run", "-p", "a", "-q"}).error_says("config.toml"));
  }
  {
    const Config config("[bench]\nprompt = [1, 2]\ntokens = 1\nrepetitions = 1\ncsv = true\n");
    const Outcome bench = chaski_run({"bench", "--device", "cpu"});
    CHECK_MESSAGE(bench.status == 0, bench.err);
    CHECK(std::ranges::count(bench.out, '\n') >= 4);
    CHECK(chaski_run({"bench", "--device", "cpu", "--json"})
              .out.starts_with("{"));  // --json overrides csv
  }
  const Config config("type = \"f32\"\nprompt = \"x\"\n");
  const TempFolder folder;
  const auto type_of = [&](const Arguments& more) {
    Arguments all = {"quantize", kStory, folder / "out.quipu"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = chaski_run(all);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return std::filesystem::file_size(folder / "out.quipu");
  };
  CHECK(type_of({}) > 2 * type_of({"q8"}));
  CHECK(type_of({"q8"}) == type_of({"--type", "q8"}));
  write_file(folder / "text", "Once");
  CHECK(chaski_run({"run", "-n", "1", "-f", folder / "text"}).status ==
        0);  // --file overrides prompt
}

TEST_CASE("config/settings that conflict with the command line are ignored") {
  const std::string beams = text_of({"--beam", "2", "-n", "9"});
  const std::string drawn = text_of({"-s", "5", "-n", "30", "--temp", "1.5"});
  {
    const Config config(
        "temp = 0.7\ndraft = \"" + std::filesystem::absolute(kStory).string() +
        "\"\ncontext-policy = \"shift\"\nseed = 3\nregex = \"a*\"\n[run]\nlogprobs = 3\n");
    CHECK(text_of({"--beam", "2", "-n", "9"}) == beams);
    const Outcome quiet = chaski_run({"run", "-p", "Once upon a time", "-n", "9", "--beam", "2"});
    CHECK_MESSAGE(!quiet.error_says("config file"), quiet.err);
    const Outcome said =
        chaski_run({"run", "-p", "Once upon a time", "-n", "9", "--beam", "2", "-v"});
    CHECK_MESSAGE(
        said.error_says("note: because of --beam, these settings of the config file are ignored: "
                        "--seed, --temp, --draft, --context-policy\n"),
        said.err);
    check_one_line(chaski_run({"run", "-p", "a", "--beam", "2", "--temp", "0.5"}), 2,
                   "--temp is 0.5 with --beam");
    // --json-schema overrides regex
    CHECK(text_of({"--json-schema", R"({"enum": [1]})", "-n", "9"}) == "1");
    CHECK(text_of({"--ignore-end", "-n", "1"}) != "");
  }
  {
    const Config config("dynatemp-range = 0.5\n");
    const std::string wide = text_of({"-s", "5", "-n", "30"});
    CHECK(wide == text_of({"-s", "5", "-n", "30", "--dynatemp-range", "0.5"}));
    CHECK(text_of({"-s", "5", "-n", "30", "--temp", "0.3"}) ==
          text_of({"-s", "5", "-n", "30", "--temp", "0.3", "--dynatemp-range", "0"}));
    CHECK(text_of({"--temp", "0", "-n", "9"}, "chat") != "");
    const Outcome said = chaski_run({"run", "-p", "a", "-n", "1", "--temp", "0.3"});
    CHECK_MESSAGE(said.error_says("note: dynatemp-range = 0.5 in the config file is ignored, "
                                  "because --temp is 0.3\n"),
                  said.err);
    check_one_line(chaski_run({"run", "-p", "a", "--temp", "0.3", "--dynatemp-range", "0.5"}), 2,
                   "--dynatemp-range is 0.5, expected 0 to --temp, which is 0.3");
  }
  {
    const Config config("temp = 0.3\n");
    CHECK(text_of({"-s", "5", "-n", "30", "--dynatemp-range", "0.5"}) ==
          text_of({"-s", "5", "-n", "30", "--dynatemp-range", "0.5", "--temp", "0.8"}));
    const Outcome said = chaski_run({"run", "-p", "a", "-n", "1", "--dynatemp-range", "0.5"});
    CHECK_MESSAGE(said.error_says("note: temp = 0.3 in the config file is ignored, because "
                                  "--dynatemp-range is 0.5\n"),
                  said.err);
  }
  {
    const Config config(
        "temp = 0.3\ndynatemp-range = 0.5\n");  // a conflict within the file is an error
    check_one_line(chaski_run({"run", "-p", "a"}), 2, ":2: --dynatemp-range is 0.5, expected 0 to");
  }
  const Config config("[run]\nbeam = 2\nlength-penalty = 2\n");
  CHECK(text_of({"-s", "5", "-n", "30", "--temp", "1.5"}) == drawn);
  CHECK(text_of({"--regex", "a*", "-n", "3"}) != beams);
}

TEST_CASE("config/errors are one line with file and line") {
  const std::pair<const char*, const char*> faults[] = {
      {"threads = \"many\"", ":1: --threads is \"many\", expected a number from 1 to 1024"},
      {"\n\nthread = 4", ":3: thread is not a flag of chaski or a command, did you mean threads?"},
      {"top_p = 2.5", ":1: --top-p is 2.5, expected more than 0, at most 1"},
      {"topp = 0.5", ":1: topp is not a flag of chaski or a command, did you mean top-p?"},
      {"help = true", ":1: help is not a flag of chaski or a command"},
      {"json = 1", ":1: json is 1, expected true or false"},
      {"threads = true", ":1: threads is true, expected a value for --threads N"},
      {"temp = [1, 2]", ":1: temp is an array, expected a value for --temp T"},
      {"temp = 2024-01-01", ":1: temp is a date or time, expected"},
      {"stop = [\"a\", false]", ":1: stop is false, expected a value for --stop TEXT"},
      {"seed = 1\ntop-p = 2.5", ":2: --top-p is 2.5, expected more than 0, at most 1"},
      {"kv = \"q9\"", ":1: --kv is \"q9\", expected f32, "},
      {"[chatt]\nsystem = \"x\"",
       ":1: chatt is not a flag of chaski or a command, did you mean chat?"},
      {"[chat]\nbest-of = 2", ":2: best-of is not a flag of chaski chat"},
      {"chat = 3", ":1: chat is 3, expected the table [chat]"},
      {"models = 3", ":1: models is 3, expected tables such as [models.\"llama*\"]"},
      {"[models]\nx = 3", ":2: x is 3, expected a table [models.\"x\"]"},
      {"[models.x]\nmodel = \"y\"", ":2: model cannot be set in a model's table"},
      {"[models.x]\nshel = 1", ":2: shel is not a flag of a command that opens a model"},
      {"\n[models.qwen2.5]\ntemp = 1",
       ":2: [models.qwen2.5] is not a table of a model, expected quotes"},
      {"temp = 1\ntemp = 2", ":2: "},
      {"temp =", ":1: "},
      {"temp = \"\xff\"", ":1: "},
  };
  for (const auto& [text, says] : faults) {
    CAPTURE(std::string(text));
    const Config config(text);
    check_one_line(chaski_run({"run", "-p", "a", "-n", "1"}), 2, config.file() + says);
    CHECK(chaski_run({"run", "--help"}).status == 0);
    CHECK(chaski_run({"--version"}).status == 0);
  }
}

TEST_CASE("config/CHASKI_CONFIG names another file, or none") {
  const Config config("threads = true\n");
  const TempFolder folder;
  write_file(folder / "mine", "tokens = 1\nquiet = true\n");
  const auto with = [](const std::string& value) {
    setenv("CHASKI_CONFIG", value.c_str(), 1);
    const Outcome outcome = chaski_run({"run", "-p", "a", "-n", "1"});
    unsetenv("CHASKI_CONFIG");
    return outcome;
  };
  CHECK(with("none").status == 0);
  CHECK(with(folder / "mine").status == 0);
  CHECK(with(folder / "mine").err.empty());
  check_one_line(with(""), 2, "config.toml:1: threads is true");
  check_one_line(with(folder / "nowhere"), 5, "nowhere: cannot be opened");
  check_one_line(with(folder.path), 5, folder.path);
}

TEST_CASE("config/a size whose folder is not given has no effect") {
  const Config config("[serve]\ncache-size = \"1G\"\nstore-size = \"1G\"\n");
  const Outcome outcome = chaski_run({"serve", "-m", kStory, "--port", "0", "--no-log", "--check"});
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
}
