// An error names its real cause, and a flag that cannot have an effect is refused at once.
#include <nlohmann/json.hpp>

#include "tests/kit/program.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

json result_of(const Arguments& arguments) {
  const Outcome outcome = chaski_run(arguments);
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  return json::parse(outcome.out);
}

}  // namespace

TEST_CASE("causes/load-test: an empty file, addresses and a chart that cannot be written") {
  TempFolder tmp;
  write_file(tmp / "zero.txt", "");
  const std::string server = "http://127.0.0.1:1";
  check_one_line(chaski_run({"load-test", server, "--model-name", "m", "-f", tmp / "zero.txt"}), 2,
                 "zero.txt: has no prompt, expected one a line");
  for (const char* text : {"foo", "127.0.0.1:18480"})
    check_one_line(chaski_run({"load-test", text}), 2, "expected http://HOST:PORT or https://HOST");
  check_one_line(chaski_run({"load-test", "ftp://x"}), 2,
                 "begins with ftp://, expected http://HOST:PORT");
  check_one_line(chaski_run({"load-test", server, "--model-name", "m", "--svg", "/nonexist/x.svg"}),
                 5, "/nonexist/x.svg: ");
}

TEST_CASE("causes/flags that are always refused are in no help and no completion") {
  for (const char* command : {"serve", "batch"}) {
    const std::string help = chaski_run({command, "--help"}).out;
    for (const char* flag : {"--grammar", "--json-schema", "--regex"})
      CHECK_MESSAGE(!contains(help, flag), command, " ", flag);
  }
  check_one_line(chaski_run({"batch", "--regex", "a", "-", "-"}), 2, "--regex constrains one text");
  CHECK(contains(chaski_run({"run", "--help"}).out, "--regex"));
  const std::string script = chaski_run({"completion", "bash"}).out;
  for (const char* command : {"serve", "batch"}) {
    const std::string begin = std::string("\n      ") + command + ") offers=";
    REQUIRE(contains(script, begin));
    for (size_t at = 0; (at = script.find(begin, at)) != script.npos; ++at)
      CHECK(!contains(script.substr(at, script.find('\n', at + 1) - at), "--regex"));
  }
}

TEST_CASE("causes/run --json: the text is that of its tokens, also without a prompt") {
  const json run = result_of({"run", "--json", "-q", "-n", "3", "--logprobs", "1"});
  std::string text;
  for (const json& token : run["log_probabilities"]) text += token["text"].get<std::string>();
  CHECK(run["text"] == text);
  // For a person, the prompt comes before the answer, and only if there is one.
  CHECK(chaski_run({"run", "-q", "-n", "3"}).out.starts_with("Once upon a time"));
  CHECK(chaski_run({"run", "-q", "-n", "0"}).out.starts_with("Once upon a time"));
}

TEST_CASE("causes/folders and names") {
  TempFolder tmp;
  write_file(tmp / "file", "x");
  check_one_line(chaski_run({"serve", "--port", "0", "--check", "--store", tmp / "file"}), 5,
                 "file: is not a folder");
  check_one_line(chaski_run({"serve", "--check", "--host", std::string(64, 'a') + ".invalid"}), 5,
                 "aaa.invalid cannot be resolved");
  write_file(tmp / "in.jsonl", "{\"prompt\": \"a\"}\n");
  check_one_line(chaski_run({"batch", tmp / "in.jsonl", tmp.path}), 2, ": is a folder, expected");
  check_one_line(chaski_run({"eval", "-f", tmp / "file"}), 2, "file: the text has 2 tokens, ");
  CHECK(!contains(chaski_run({"run", "a", "b", "c"}).err, "downloads one of these"));
  const Outcome draft = chaski_run({"run", "-p", "a", "--draft", "nofile"});
  CHECK_MESSAGE(contains(draft.err, ", or a smaller model with the same vocabulary"), draft.err);
  const OwnVariable models("CHASKI_MODELS", "/nonexist"), home("HOME", tmp.path),
      cache("XDG_CACHE_HOME", tmp / "cache");
  CHECK(chaski_run({"list"}).error_says("CHASKI_MODELS names /nonexist, which is not a folder"));
}

TEST_CASE("causes/values that would do nothing, or that mean another number") {
  TempFolder tmp;
  check_one_line(chaski_run({"bench", "-p", "0", "-n", "0"}), 2, "leave nothing to measure");
  write_file(tmp / "t.txt", "x");
  check_one_line(chaski_run({"quantize", kStory, tmp / "o.quipu", "q8", "--size", "1.5M",
                             "--calibrate", tmp / "t.txt"}),
                 2, "the type q8 is not possible with a budget");
  const Outcome eval = chaski_run(
      {"eval", "-m", kStory, "-f", kEvaluationText, "--chunks", "2", "-c", "64", "--jsonl"});
  CHECK_MESSAGE(eval.status == 0, eval.err);
  int scored = 0;
  for (const std::string& line : lines_of(eval.out)) {
    const json event = json::parse(line);
    if (event["event"] != "progress" || !event.contains("perplexity")) continue;
    CHECK(event["perplexity"] > 1);
    ++scored;
  }
  CHECK(scored > 0);
  check_one_line(chaski_run({"run", "-p", "a", "--json-schema", "{\"enum\": []}"}), 2,
                 "is empty, expected at least one entry");
  check_one_line(chaski_run({"run", "-p", "a", "--json-schema", "{\"contentFoo\": 1}"}), 2,
                 "expected a keyword that docs/grammar.md lists");
}
