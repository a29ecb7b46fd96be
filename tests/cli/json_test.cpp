// The fields that --json and --jsonl write are those of docs/json.md.
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/kit/program.h"
#include "tests/kit/server.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

struct Row {
  std::string type;
  bool always;
};
using Rows = std::map<std::string, Row>;  // key: the field, such as "tensors[].name"

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" `"), end = text.find_last_not_of(" `");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// The tables of docs/json.md, by their headings: "run", "run, event text".
std::map<std::string, Rows> documented() {
  std::map<std::string, Rows> all;
  std::istringstream in(read_file("docs/json.md"));
  std::string heading;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ") || line.starts_with("### "))
      heading = line.substr(line.find(' ') + 1);
    if (!line.starts_with("| `")) continue;
    std::istringstream cells(line.substr(1));
    std::string field, type, there;
    std::getline(cells, field, '|'), std::getline(cells, type, '|'),
        std::getline(cells, there, '|');
    CHECK_MESSAGE(
        all[heading].emplace(trimmed(field), Row{trimmed(type), trimmed(there) == "always"}).second,
        heading, " has ", field, " twice");
  }
  return all;
}

bool fits(const json& value, const std::string& type) {
  if (type == "any") return true;
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "text") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "list") return value.is_array();
  if (type != "list of integers" || !value.is_array()) return false;
  return std::all_of(value.begin(), value.end(), [](auto& v) { return v.is_number_integer(); });
}

void check_object(const json& object, const Rows& rows, const std::string& prefix = "") {
  for (const auto& [name, value] : object.items()) {
    if (prefix.empty() && (name == "schema" || name == "event")) continue;
    const std::string path = prefix + name;
    const auto found = rows.find(path), any = rows.find(prefix + "*");
    CHECK_MESSAGE((found != rows.end() || any != rows.end()), path, " is not in docs/json.md");
    if (found == rows.end()) continue;
    CHECK_MESSAGE(fits(value, found->second.type), path, " is ", value.dump(), ", expected ",
                  found->second.type);
    if (value.is_object()) check_object(value, rows, path + ".");
    if (value.is_array())
      for (const json& one : value)
        if (one.is_object()) check_object(one, rows, path + "[].");
  }
  for (const auto& [path, row] : rows) {
    if (!row.always || !path.starts_with(prefix)) continue;
    const std::string name = path.substr(prefix.size());
    if (name.find_first_of(".[") == std::string::npos && name != "*")
      CHECK_MESSAGE(object.contains(name), path, " is missing");
  }
}

void check_whole(const std::string& heading, const std::string& text) {
  const Rows rows = documented()[heading];
  REQUIRE_MESSAGE(!rows.empty(), heading, " is not in docs/json.md");
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  const json value = json::parse(text);
  for (const json& object : value.is_array() ? value : json::array({value})) {
    CHECK(object["schema"] == 1);
    check_object(object, rows);
  }
}

// Returns the number of objects for each event.
std::map<std::string, int> check_lines(const std::string& command, const std::string& text) {
  const auto all = documented();
  std::map<std::string, int> events;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const json object = json::parse(line);
    CHECK(object["schema"] == 1);
    const std::string event = object["event"],
                      heading = event == "result" ? command : command + ", event " + event;
    const auto rows = all.find(heading);
    REQUIRE_MESSAGE(rows != all.end(), heading, " is not in docs/json.md");
    check_object(object, rows->second);
    ++events[event];
  }
  return events;
}

struct Case {
  std::string heading;
  Arguments arguments;
};

}  // namespace

TEST_CASE("cli/json: every command writes the fields of docs/json.md") {
  const TempFolder tmp;
  const std::string text = write_file(tmp / "text", [] {
    std::string words;
    for (int i = 0; i < 60; ++i) words += "Once upon a time there was a dog. ";
    return words;
  }());
  const OwnVariable models("CHASKI_MODELS", tmp.path), home("HOME", tmp.path),
      cache("XDG_CACHE_HOME", tmp / "cache");
  write_file(tmp / "broken.gguf", "x");
  const std::string q8 = tmp / "q8.quipu", out = tmp / "out.quipu";
  std::filesystem::copy_file(kStory, q8);
  const std::vector<Case> cases = {
      {"run", {"run", "-n", "3", "--seed", "1", "--json"}},
      {"run", {"run", "-n", "3", "-p", "The", "--logprobs", "2", "--json"}},
      {"run", {"run", "-n", "3", "-p", "The", "--answers", "2", "--json"}},
      {"run", {"run", "-n", "3", "-p", "The", "--best-of", "2", "--json"}},
      {"run", {"run", "-n", "3", "-p", "The", "--beam", "2", "--json"}},
      {"chat", {"chat", "-n", "3", "-p", "Hello", "--json"}},
      {"quantize", {"quantize", q8, out, "--json"}},
      {"quantize", {"quantize", q8, out, "--fast", "--json"}},
      {"quantize", {"quantize", q8, out, "--calibrate", text, "--chunks", "1", "--json"}},
      {"quantize",
       {"quantize", q8, out, "--calibrate", text, "--chunks", "1", "--method", "awq", "--json"}},
      {"quantize",
       {"quantize", q8, out, "--calibrate", text, "--chunks", "1", "--outliers", "2", "--json"}},
      {"quantize --dry-run",
       {"quantize", q8, out, "--calibrate", text, "--chunks", "1", "--bpw", "5", "--dry-run",
        "--json"}},
      {"quantize --dry-run", {"quantize", q8, out, "Q4_K_M", "--dry-run", "--json"}},
      {"convert", {"convert", q8, tmp / "out.gguf", "--json"}},
      {"convert", {"convert", q8, tmp / "fp8", "--layout", "fp8", "--json"}},
      {"inspect", {"inspect", q8, "--verify", "--json"}},
      {"inspect", {"inspect", golden("models/qwen2"), "--json"}},
      {"tokenize", {"tokenize", "-p", "Hello", "--json"}},
      {"tokenize --decode", {"tokenize", "--decode", "5", "--json"}},
      {"template", {"template", "--json"}},
      {"eval", {"eval", "-c", "64", "-f", text, "--json"}},
      {"eval", {"eval", "-c", "64", "-f", text, "--kl", q8, "--noise", "--json"}},
      {"bench", {"bench", "-p", "8", "-n", "2", "-r", "1", "--json"}},
      {"bench", {"bench", "-p", "8", "-n", "2", "-r", "1", "--profile", "--json"}},
      {"list", {"list", "--json"}},
      {"bench",
       {"bench", "-m", tmp / "out.gguf", "-p", "8", "-n", "2", "-r", "1", "--keep-converted", "1G",
        "--json"}},
      {"cache", {"cache", "--json"}},
      {"doctor", {"doctor", "--json"}},
      {"plan", {"plan", q8, "--json"}},
      {"plan",
       {"plan", "--shape", "llama-3.1-8b:f32", "--device", "cpu", "-c", "100000", "--json"}},
      {"compare", {"compare", kStory, q8, "-c", "64", "-f", text, "--json"}},
      {"compare", {"compare", kStory, q8, "-c", "64", "-f", text, "--temp", "1", "--json"}},
  };
  for (const Case& one : cases) {
    CAPTURE(one.heading);
    const Outcome outcome = chaski_run(one.arguments);
    // plan: a model that is larger than this machine's memory
    REQUIRE_MESSAGE((outcome.status == 0 || (one.heading == "plan" && outcome.status == 4)),
                    outcome.err);
    check_whole(one.heading, outcome.out);
  }
  const json listed = json::parse(chaski_run({"list", "--json"}).out);
  for (const auto& model : listed["models"]) CHECK(model["runs"] == (model["name"] != "broken"));

  // An error is a line on standard error, not JSON.
  check_one_line(chaski_run({"run", "-p", "x", "-m", tmp / "nothing", "--json"}), 5,
                 "cannot be opened");
  check_one_line(chaski_run({"chat", "--lines", "--json"}, "Hello\n"), 2, "--jsonl with --lines");

  // Every command that has --json is in the list above. pull and load-test need a server: the next
  // case tries them.
  const std::string help = chaski_run({"--help"}).out;
  std::istringstream rows(help.substr(help.find("\nCommands:\n") + 11));
  int commands = 0;
  for (std::string line; std::getline(rows, line) && !line.empty();) {
    std::string name;
    std::istringstream(line) >> name;
    if (!line.starts_with("  ") || line[2] == ' ') continue;  // continues the row before
    CAPTURE(name);
    ++commands;
    const bool tried = std::any_of(cases.begin(), cases.end(),
                                   [&](const Case&c) { return c.arguments[0] == name; }),
               without = name == "completion" || name == "help" || name == "serve" ||
                         name == "batch";  // the last two write JSON only
    CHECK((tried || name == "pull" || name == "load-test" || without));
    CHECK(contains(chaski_run({name, "--help"}).out, "--json ") != without);
  }
  CHECK(commands > 10);
}

TEST_CASE("cli/json: --jsonl writes a line for each event, the result last") {
  const TempFolder tmp;
  const OwnVariable models("CHASKI_MODELS", tmp.path), home("HOME", tmp.path);
  const std::string q8 = tmp / "q8.quipu";
  std::filesystem::copy_file(kStory, q8);
  const auto events = [](const Arguments& arguments, const std::string& input = "") {
    const Outcome outcome = chaski_run(arguments, input);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return check_lines(arguments[0], outcome.out);
  };
  const Arguments run = {"run", "-p", "The", "-n", "12", "--seed", "1"};
  Arguments streamed = run;
  streamed.push_back("--jsonl");
  CHECK(events(streamed)["result"] == 1);
  CHECK(events(streamed)["text"] > 1);
  // The parts together are the text, which is the same as without --jsonl.
  std::string parts;
  std::istringstream lines(chaski_run(streamed).out);
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    if (object["event"] == "text") parts += object["text"].get<std::string>();
    if (object["event"] == "result") CHECK(object["text"] == parts);
  }
  CHECK(parts == chaski_run(run).out);
  streamed.insert(streamed.end(), {"--answers", "2"});
  CHECK(events(streamed)["result"] == 2);

  auto seen = events({"chat", "--lines", "-n", "4", "--jsonl"}, "Hello\nWho are you?\n");
  CHECK(seen["result"] == 2);
  CHECK(seen["text"] >= 2);
  CHECK(events({"quantize", q8, tmp / "a.quipu", "--jsonl"})["result"] == 1);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "Once upon a time there was a dog. ";
  seen = events({"eval", "-c", "64", "--jsonl"}, text);
  CHECK(seen["progress"] > 1);
  CHECK(seen["result"] == 1);
  CHECK(events({"list", "--jsonl"})["model"] == 2);
  check_one_line(chaski_run({"list", "--json", "--jsonl"}), 2, "expected one of them");

  Server server([](const std::string&, const std::string&, Connection& to) {
    to.put("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nHello");
  });
  seen = events({"pull", server.url() + "/x.bin", "--jsonl"});
  CHECK(seen["file"] == 1);
  CHECK(seen["result"] == 1);
  check_whole("pull", chaski_run({"pull", server.url() + "/x.bin", "--json"}).out);

  std::atomic<int> answered = 0;
  Server chat([&](const std::string&, const std::string& head, Connection& to) {
    to.body(head);
    if (++answered % 2 == 0) return to.put("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    to.put(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n"
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\n");
  });
  Arguments load = {"load-test", chat.url(), "--model-name", "m", "-n", "4", "--jsonl"};
  seen = events(load);
  CHECK(seen["request"] == 4);
  CHECK(seen["result"] == 1);
  load.back() = "--json";
  load.insert(load.end(), {"--rate", "1000", "--ttft-limit", "1000", "--itl-limit", "1000"});
  check_whole("load-test", chaski_run(load).out);
}
