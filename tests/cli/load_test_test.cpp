// chaski load-test against a server in the test, which sends each byte of its streams.
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/loadtest/load_report.h"
#include "tests/kit/program.h"
#include "tests/kit/server.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

std::string stream_head(const std::string& type = "text/event-stream") {
  return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + type + "\r\n\r\n";
}
std::string event(const std::string& data) { return "data: " + data + "\n\n"; }
std::string text_event(const std::string& text) {
  return event(json{{"choices", {{{"index", 0}, {"delta", {{"content", text}}}}}}}.dump());
}
const std::string kRole = event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"),
                  kStop = event(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"),
                  kDone = event("[DONE]");
std::string usage_event(int prompt, int cached, int answer) {
  return event(json{{"choices", json::array()},
                    {"usage",
                     {{"prompt_tokens", prompt},
                      {"completion_tokens", answer},
                      {"prompt_tokens_details", {{"cached_tokens", cached}}}}}}
                   .dump());
}
const std::string kModels =
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 37\r\n\r\n"
    R"({"data":[{"id":"one"},{"id":"two"}]})"
    "\n";

// A server that answers a chat with `stream` and keeps the bodies of the requests.
struct ChatServer {
  std::mutex mutex;
  std::vector<json> bodies;
  std::string stream;
  Server server;
  explicit ChatServer(std::string answer)
      : stream(std::move(answer)),
        server(
            [this](const std::string& path, const std::string& head, Connection& to) {
              const std::string body = to.body(head);
              if (path == "/v1/models") return to.put(kModels);
              {
                const std::lock_guard lock(mutex);
                bodies.push_back(json::parse(body));
              }
              to.put(stream);
            },
            Server::Connections::at_once) {}
};

AnswerReader read_in_parts(const std::string& stream, size_t size) {
  AnswerReader reader;
  for (size_t at = 0; at < stream.size(); at += size)
    reader.add(std::string_view(stream).substr(at, size), double(at));
  reader.end(double(stream.size()));
  return reader;
}

// The smallest value that at least `percent` of the values do not exceed, by counting.
double counted_percentile(const std::vector<double>& values, double percent) {
  double best = INFINITY;
  for (const double v : values) {
    const auto below = std::ranges::count_if(values, [&](double w) { return w <= v; });
    if (100.0 * double(below) >= percent * double(values.size())) best = std::min(best, v);
  }
  return best;
}

}  // namespace

TEST_CASE("load-test/a stream in parts of any size gives the same answer") {
  const std::string whole =
      ": a comment\n\n" + kRole + text_event("Grüße") + "event: x\r\nid: 1\r\n" +
      "data: {\"choices\":[{\"delta\":\r\ndata:{\"content\":\" two\\n\"}}]}\r\n\r\n" +
      "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\r\r" + kStop +
      usage_event(12, 8, 3) + kDone;
  for (size_t size = 1; size <= whole.size(); ++size) {
    const LoadAnswer answer = read_in_parts(whole, size).answer();
    REQUIRE(answer.problem == "");
    CHECK(answer.whole());
    CHECK(answer.text == "Grüße two\n");
    CHECK(answer.finish == "stop");
    CHECK(answer.times.size() == 3);
    CHECK(answer.prompt_tokens == 12);
    CHECK(answer.cached_tokens == 8);
    CHECK(answer.answer_tokens == 3);
  }
  // The time of an event is that of its last byte.
  const LoadAnswer slow = read_in_parts(text_event("a") + text_event("b") + kDone, 1).answer();
  const auto length = double(text_event("a").size());
  CHECK(slow.times == std::vector<double>{length - 1, 2 * length - 1});
  CHECK(slow.tokens() == 2);
  // A last event without an empty line after it, tool calls, and the text of a completion.
  CHECK(read_in_parts(text_event("a") + "data: [DONE]", 3).answer().whole());
  const LoadAnswer call =
      read_in_parts(event(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})") + kDone, 5)
          .answer();
  CHECK(call.times.size() == 1);
  const LoadAnswer plain =
      read_in_parts(event(R"({"choices":[{"text":"Hi","finish_reason":"length"}]})"), 7).answer();
  CHECK(plain.whole());
  CHECK(plain.text == "Hi");
}

TEST_CASE("load-test/what is wrong with a stream is named") {
  const auto problem = [](const std::string& stream) {
    return read_in_parts(stream, 9).answer().problem;
  };
  CHECK(problem(text_event("a")) == "cut");
  CHECK(problem("") == "cut");
  CHECK(problem(kRole + kStop + kDone) == "empty");
  CHECK(problem(text_event("a") + event("{broken") + kDone) == "malformed");
  CHECK(problem(text_event("a") + event("[1]") + kDone) == "malformed");
  const LoadAnswer error =
      read_in_parts(text_event("a") + event(R"({"error":{"message":"no memory","code":500}})"), 9)
          .answer();
  CHECK(error.problem == "error in the stream");
  CHECK(error.detail == "no memory");
  CHECK(problem(event(std::string(EventStream::kMostBytes + 1, 'x'))) == "malformed");
  for (const char* odd : {"null", R"({"choices":null})", R"({"choices":[]})", R"({"choices":[7]})",
                          R"({"choices":[{"delta":7}]})", R"({"usage":7})",
                          R"({"usage":{"prompt_tokens":"x"},"choices":[{"delta":{"content":7}}]})"})
    CHECK_MESSAGE(!read_in_parts(event(odd) + kDone, 9).answer().whole(), odd);
}

TEST_CASE("load-test/statistics equal those of a reference") {
  LoadRun run;
  run.seconds = 20;
  std::vector<double> first, between, whole;
  unsigned seed = 7;
  const auto draw = [&] { return double((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 24); };
  int answers = 0, good = 0;
  const LoadLimits limits{0.7, 0.95};
  for (int i = 0; i < 137; ++i) {
    LoadRecord record;
    record.scheduled = draw() * 10, record.sent = record.scheduled + 0.001 * i;
    double at = record.scheduled + draw();
    const int events = 1 + i % 6;
    bool within = at - record.scheduled <= limits.first;
    for (int k = 0; k < events; ++k) {
      record.answer.times.push_back(at);
      const double gap = draw();
      at += gap;
      if (i % 10 == 0 || k + 1 == events) continue;
      between.push_back(record.answer.times.back() + gap - record.answer.times.back());
      within &= between.back() <= limits.between;  // with fewer than 100 gaps, none may exceed it
    }
    record.end = at;
    record.answer.finish = "stop", record.answer.answer_tokens = events;
    record.answer.prompt_tokens = 10, record.answer.cached_tokens = 4;
    if (i % 10 == 0) {
      record.answer.refuse(i % 20 == 0 ? "cut" : "status 503", "words " + std::to_string(i));
    } else {
      first.push_back(record.first()), whole.push_back(record.end - record.scheduled);
      answers += events, good += within;
    }
    run.records.push_back(std::move(record));
  }
  const LoadReport report = report_of(run, limits);
  CHECK(report.requests == 137);
  CHECK(report.answered == 123);
  CHECK(report.good == good);
  CHECK(report.answer_total == answers);
  CHECK(report.prompt_total == 1230);
  CHECK(report.cached_total == 492);
  CHECK(report.tokens_an_event == 1);
  CHECK(report.counted);
  CHECK(report.a_second(answers) == answers / 20.0);
  CHECK(report.errors.at("cut").count == 7);
  CHECK(report.errors.at("status 503").count == 7);
  CHECK(report.errors.at("status 503").example == "words 10");
  const auto check = [](const Distribution& d, const std::vector<double>& values) {
    CHECK(d.count == values.size());
    CHECK(d.p50 == doctest::Approx(counted_percentile(values, 50)).epsilon(1e-12));
    CHECK(d.p90 == doctest::Approx(counted_percentile(values, 90)).epsilon(1e-12));
    CHECK(d.p99 == doctest::Approx(counted_percentile(values, 99)).epsilon(1e-12));
    CHECK(d.most == doctest::Approx(*std::ranges::max_element(values)).epsilon(1e-12));
  };
  check(report.first, first), check(report.between, between), check(report.whole, whole);
  CHECK(report.late.most == doctest::Approx(0.136));
  for (size_t n = 1; n <= 200; ++n) {
    std::vector<double> values;
    for (size_t i = 1; i <= n; ++i) values.push_back(double(i));
    CHECK(percentile(values, 99) == counted_percentile(values, 99));
    CHECK(percentile(values, 50) == counted_percentile(values, 50));
  }
}

TEST_CASE("load-test/a seed gives the same workload and the arrivals of a Poisson process") {
  WorkloadOptions options;
  options.prompt = {5, 9}, options.kind = WorkloadOptions::Kind::chat, options.turns = 3;
  const Workload one(options, "", ""), same(options, "", "");
  CHECK(one.conversation(4)[2].text == same.conversation(4)[2].text);
  CHECK(one.conversation(4)[2].text != one.conversation(5)[2].text);
  CHECK(one.conversation(0).size() == 3);
  const auto words = std::ranges::count(one.conversation(7)[1].text, ' ') + 1;
  CHECK((words >= 5 && words <= 9));
  options.seed = 2;
  CHECK(Workload(options, "", "").conversation(4)[2].text != one.conversation(4)[2].text);

  options = {};
  options.kind = WorkloadOptions::Kind::prefix, options.prefix_tokens = 300;
  const Workload shared(options, "", "");
  const auto a = shared.conversation(0)[0], b = shared.conversation(1)[0];
  CHECK(a.messages.size() == 2);
  CHECK(a.messages[0] == b.messages[0]);
  CHECK(a.messages[1] != b.messages[1]);
  CHECK(a.text.substr(0, 1000) == b.text.substr(0, 1000));

  const std::string file =
      "first\r\n\n{\"prompt\": \"two\\nlines\"}\n{\"messages\": [{\"role\": \"user\"}]}\n";
  const Workload lines({}, file, "F");
  CHECK(lines.conversation(0)[0].text == "first");
  CHECK(lines.conversation(4)[0].text == "two\nlines");
  CHECK(lines.conversation(5)[0].messages == std::vector<std::string>{R"({"role":"user"})"});
  options = {}, options.chat = false;
  const auto refusal = [&](const std::string& text) {
    return std::string(error_of([&] { Workload(options, text, "F"); }).what());
  };
  CHECK(refusal("x\n{\"prompt\": 1}") ==
        "F, line 2: has neither \"prompt\" (a text) nor \"messages\" (a list)");
  CHECK(contains(refusal("{x"), "F, line 1: is not JSON"));
  CHECK(contains(refusal(file), "F, line 4: has messages, expected a prompt"));
  CHECK(contains(refusal(" \n"), "F: has no prompt"));

  // Mean and variance of the gaps are 1 / rate and 1 / rate².
  PoissonArrivals arrivals(4, 1), again(4, 1);
  double before = 0, sum = 0, squares = 0;
  constexpr int kGaps = 20000;
  for (int i = 0; i < kGaps; ++i) {
    const double at = arrivals.next(), gap = at - before;
    CHECK(at == again.next());
    sum += gap, squares += gap * gap, before = at;
  }
  const double mean = sum / kGaps;
  CHECK(mean == doctest::Approx(0.25).epsilon(0.02));
  CHECK(squares / kGaps - mean * mean == doctest::Approx(0.0625).epsilon(0.05));
}

TEST_CASE("load-test/a closed loop against a server") {
  const TempFolder tmp;
  ChatServer chat(stream_head() + kRole + text_event("One") + text_event(" two") +
                  text_event(" three") + kStop + usage_event(20, 16, 3) + kDone);
  const Outcome outcome =
      chaski_run({"load-test", chat.server.url(), "--clients", "4", "-n", "12", "--body",
                  R"({"temperature": 0, "stream_options": null})", "--ignore-eos", "--svg",
                  tmp / "load.svg", "--ttft-limit", "60000", "--prompt-tokens", "3"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  CHECK(contains(outcome.out, "12 of 12 requests answered"));
  CHECK(contains(outcome.out, "no coordinated omission"));
  CHECK(contains(outcome.out, "model one, 4 clients (closed loop), workload single"));
  CHECK(contains(outcome.out, "prompt tokens/s (80% cached)"));
  CHECK(contains(outcome.out, "12 of 12 requests within 60000 ms to the first token\n"));
  CHECK(contains(squeezed(outcome.out), "answer tokens 3 3 3 3 3"));
  CHECK(!contains(outcome.out, "errors"));
  REQUIRE(chat.bodies.size() == 12);
  const json& body = chat.bodies[0];
  CHECK(body["model"] == "one");
  CHECK(body["stream"] == true);
  CHECK(body["max_tokens"] == 128);
  CHECK(body["temperature"] == 0);
  CHECK(body["ignore_eos"] == true);
  CHECK(!body.contains("stream_options"));
  CHECK(body["messages"].size() == 1);
  CHECK(!contains(chat.server.heads()[1], "Authorization"));

  const std::string svg = read_file(tmp / "load.svg");
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  size_t dots = 0;
  for (size_t at = 0; (at = svg.find("<circle", at)) != svg.npos; ++at) ++dots;
  CHECK(dots == 12);
  CHECK(!contains(svg, "nan"));
  CHECK(!contains(svg, "href"));

  // The same seed sends the same prompts again.
  std::vector<std::string> sent, again;
  for (const json& one : chat.bodies) sent.push_back(one["messages"].dump());
  chat.bodies.clear();
  CHECK(chaski_run({"load-test", chat.server.url() + "/v1/", "-n", "12", "--prompt-tokens", "3"})
            .status == 0);
  for (const json& one : chat.bodies) again.push_back(one["messages"].dump());
  std::ranges::sort(sent), std::ranges::sort(again);
  CHECK(sent == again);
  CHECK(chat.bodies[0]["stream_options"]["include_usage"] == true);
}

TEST_CASE("load-test/conversations send their earlier turns, and completions their text") {
  ChatServer chat(stream_head() + text_event("Yes") + kDone);
  const Arguments talk = {
      "load-test", chat.server.url(), "--workload", "chat",    "--turns", "3",   "-n",
      "5",         "--model-name",    "m",          "--jsonl", "--rate",  "1000"};
  const Outcome outcome = chaski_run(talk);
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  REQUIRE(chat.bodies.size() == 5);
  std::vector<size_t> lengths;
  for (const json& body : chat.bodies) {
    lengths.push_back(body["messages"].size());
    if (lengths.back() < 3) continue;
    CHECK(body["messages"][1] == json{{"role", "assistant"}, {"content", "Yes"}});
  }
  std::ranges::sort(lengths);
  CHECK(lengths == std::vector<size_t>{1, 1, 3, 3, 5});
  const std::vector<std::string> lines = lines_of(outcome.out);
  CHECK(lines.size() == 6);
  const json result = json::parse(lines.back());
  CHECK(result["event"] == "result");
  CHECK(result["loop"] == "open");
  CHECK(result["tokens_from"] == "events");

  chat.stream = stream_head() + event(R"({"choices":[{"text":" no","finish_reason":"stop"}]})");
  chat.bodies.clear();
  const TempFolder tmp;
  const std::string prompts = write_file(tmp / "p", "A dog\n{\"prompt\": \"A cat\"}\n");
  REQUIRE(chaski_run({"load-test", chat.server.url(), "--endpoint", "completions", "-f", prompts,
                      "--model-name", "m", "-n", "3"})
              .status == 0);
  std::vector<std::string> texts;
  for (const json& body : chat.bodies) texts.push_back(body["prompt"]);
  CHECK(texts == std::vector<std::string>{"A dog", "A cat", "A dog"});
  CHECK(contains(chat.server.heads().back(), "POST /v1/completions "));
}

TEST_CASE("load-test/errors are counted by kind, and a key is sent where it is safe") {
  std::atomic<int> count = 0;
  const std::string good = stream_head() + text_event("a") + kStop + kDone;
  Server server(
      [&](const std::string&, const std::string& head, Connection& to) {
        to.body(head);
        if (!contains(head, "Authorization: Bearer secret\r\n"))
          return to.put("HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        switch (count++ % 6) {
          case 0:
            return to.put(good);
          case 1:
            return to.put(
                "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 34\r\n\r\n"
                "{\"error\":{\"message\":\"queue is full\"}}");
          case 2:
            return to.put(stream_head() + text_event("a"));
          case 3:
            return to.put(stream_head("application/json") + "{}");
          case 4:
            return to.put(stream_head() + event(R"({"error":"failed"})"));
          default:
            return to.put("");
        }
      },
      Server::Connections::at_once);
  const Arguments test = {"load-test", server.url(), "--model-name", "m", "-n", "12", "--json"};
  check_one_line(chaski_run(test), 5, "none of 12 requests was answered; status 401: ");
  const OwnVariable key("CHASKI_API_KEY", "secret");
  const Outcome outcome = chaski_run(test);
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json result = json::parse(outcome.out);
  CHECK(result["answered"] == 2);
  CHECK(result["requests"] == 12);
  std::map<std::string, int> kinds;
  for (const json& one : result["errors"]) kinds[one["kind"]] = one["count"];
  CHECK(kinds ==
        std::map<std::string, int>{
            {"cut", 4}, {"error in the stream", 2}, {"not a stream", 2}, {"status 503", 2}});
  check_one_line(chaski_run({"load-test", "http://example.invalid", "--model-name", "m"}), 2,
                 "is not encrypted, so the API key is not sent there");
}

TEST_CASE("load-test/a server that hangs, none at all, and Ctrl-C") {
  Server hangs(
      [&](const std::string&, const std::string& head, Connection& to) {
        to.body(head);
        to.put(stream_head() + text_event("a"));
        to.hang();
      },
      Server::Connections::at_once);
  check_one_line(chaski_run({"load-test", hangs.url(), "--model-name", "m", "-n", "2", "--clients",
                             "2", "--timeout", "0.2"}),
                 5, "none of 2 requests was answered; timeout: ");
  check_one_line(chaski_run({"load-test", "http://127.0.0.1:1", "--model-name", "m", "-n", "1"}), 5,
                 "none of 1 request was answered; no connection: ");
  check_one_line(chaski_run({"load-test", "http://127.0.0.1:1"}), 5,
                 "/v1/models: cannot be read: ");

  std::atomic<int> open = 0;
  Server half(
      [&](const std::string&, const std::string& head, Connection& to) {
        to.body(head);
        to.put(stream_head() + text_event("a"));
        if (++open == 3) return to.put(kDone);
        to.hang();
      },
      Server::Connections::at_once);
  Program program(
      {"load-test", half.url(), "--model-name", "m", "--clients", "3", "--json", "-n", "3"}, "");
  for (int i = 0; i < 500 && open < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  program.signal(SIGINT);
  const Outcome stopped = program.wait();
  CHECK(stopped.status == 130);
  CHECK(json::parse(stopped.out)["answered"] == 1);
}

TEST_CASE("load-test/flags that cannot be honoured are refused") {
  const auto refused = [](Arguments more, const std::string& says) {
    Arguments all = {"load-test", "http://127.0.0.1:1", "--model-name", "m"};
    all.insert(all.end(), more.begin(), more.end());
    check_one_line(chaski_run(all), 2, says);
  };
  refused({"--turns", "3"}, "--turns is given with --workload single, expected --workload chat");
  refused({"--prefix-tokens", "3", "--workload", "chat"}, "expected --workload prefix");
  refused({"--rate", "2", "--clients", "3"}, "--clients");
  refused({"--rate", "-2"}, "--rate is -2, expected a number from 0");
  refused({"--prompt-tokens", "9-3"}, "--prompt-tokens is \"9-3\", expected a number of tokens");
  refused({"--answer-tokens", "0"}, "--answer-tokens is \"0\", expected a number of tokens");
  refused({"--body", "[1]"}, "--body is \"[1]\", expected a JSON object");
  refused({"--timeout", "0"}, "--timeout is 0, expected a number above 0");
  refused({"--duration", "1e-9", "--rate", "0.001"}, "no request was due within --duration");
  refused({"--api-key", "x"}, "CHASKI_API_KEY");
  check_one_line(chaski_run({"load-test", "http://127.0.0.1:1/v1/completions"}), 2,
                 "expected a path that ends with /chat/completions");
  check_one_line(chaski_run({"load-test", "ftp://127.0.0.1:1"}), 2, "begins with ftp://, expected");
  check_one_line(chaski_run({"load-test", "http://127.0.0.1:1/?a=b"}), 2, "has a query");
}

TEST_CASE("load-test/the examples of its help work") {
  ChatServer chat(stream_head() + text_event("a") + text_event("b") + kStop + kDone);
  const TempFolder tmp;
  const std::string help = chaski_run({"load-test", "--help"}).out;
  int examples = 0;
  for (const std::string& line : lines_of(help)) {
    const std::string begin = "    chaski load-test http://127.0.0.1:8080";
    if (!line.starts_with(begin)) continue;
    const std::string rest = line.substr(begin.size());
    const std::string quick =
        rest.substr(0, rest.find(" --duration 5")) +
        (contains(rest, " --duration 5")
             ? " --duration 0.5" + rest.substr(rest.find(" --duration 5") + 13)
             : "");
    const Outcome outcome = Program({"-c", "cd " + tmp.path + " && " +
                                               std::filesystem::absolute(chaski_binary()).string() +
                                               " load-test " + chat.server.url() + quick +
                                               (contains(rest, "--rate") ? " --seed 3" : "")},
                                    "", "", "/bin/sh")
                                .wait();
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    ++examples;
  }
  CHECK(examples == 3);
  CHECK(std::filesystem::exists(tmp / "load.svg"));
}
