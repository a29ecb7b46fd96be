// chaski load-test: sends requests to an OpenAI-compatible server, and measures how fast it answers
// several users.
#include "engine/loadtest/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "engine/loadtest/load_chart.h"
#include "engine/loadtest/load_report.h"
#include "engine/machine/temporaries.h"  // for AtomicFile
#include "engine/text/ordered_json.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/flags/values.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace {

constexpr int kRequests = 64;  // without --requests and --duration
constexpr double kMilli = 1e-3;

struct LoadTestFlags {
  std::string url, endpoint = "chat", workload = "single", prompts, svg;
  std::string prompt_tokens = "200", answer_tokens = "128";
  LoadTarget target;
  LoadOptions load;
  WorkloadOptions words;
  int seed = 1;
  double first_limit = 0, between_limit = 0;  // ms
  bool ignore_end = false;
  Flag requests, duration, turns, prefix, pause;
  JsonForm json;

  LoadLimits limits() const { return {first_limit * kMilli, between_limit * kMilli}; }
};

// "200", or "100-400".
TokenRange range_of(const char* flag, const std::string& text) {
  const size_t dash = text.find('-');
  const auto least = whole_of(text.substr(0, dash)),
             most = dash == text.npos ? least : whole_of(text.substr(dash + 1));
  if (!least || !most || *least < 1 || *most < *least || *most > 1 << 24)
    fail(Exit::usage, "{} {}", flag,
         refusal(text, "a number of tokens from 1, or a range such as 100-400"));
  return {*least, *most};
}

void expect_not_negative(const char* flag, double value) {
  if (value < 0) fail(Exit::usage, "{} is {}, expected a number from 0", flag, value);
}

// Checks --body, and adds what --ignore-end asks for.
std::string fields_of(const std::string& text, bool ignore_end) {
  OrderedJson fields = text.empty() ? OrderedJson::object() : maybe_json(text);
  if (!fields.is_object())
    fail(Exit::usage, "--body {}", refusal(text, R"(a JSON object, such as {"temperature": 0})"));
  if (ignore_end) fields["ignore_eos"] = true;
  return written(fields);
}

void complete(LoadTestFlags& flags) {
  using Kind = WorkloadOptions::Kind;
  flags.words.kind = flags.workload == "chat"     ? Kind::chat
                     : flags.workload == "prefix" ? Kind::prefix
                                                  : Kind::single;
  const auto needs = [&](const Flag& flag, const char* kind) {
    if (flag.given() && flags.workload != kind)
      fail(Exit::usage, "{} is given with --workload {}, expected --workload {}", flag.name(),
           flags.workload, kind);
  };
  needs(flags.turns, "chat"), needs(flags.pause, "chat"), needs(flags.prefix, "prefix");
  flags.words.prompt = range_of("--prompt-tokens", flags.prompt_tokens);
  flags.words.answer = range_of("--answer-tokens", flags.answer_tokens);
  flags.words.chat = flags.target.chat = flags.endpoint == "chat";
  flags.words.seed = flags.load.seed = uint64_t(flags.seed);
  expect_not_negative("--rate", flags.load.rate);
  expect_not_negative("--duration", flags.load.duration);
  expect_not_negative("--pause", flags.load.pause);
  expect_not_negative("--ttft-limit", flags.first_limit);
  expect_not_negative("--itl-limit", flags.between_limit);
  if (flags.target.timeout <= 0 || flags.target.timeout > 1e6)
    fail(Exit::usage, "--timeout is {}, expected a number above 0, up to 1000000",
         flags.target.timeout);
  if (!flags.requests.given()) flags.load.requests = flags.duration.given() ? 0 : kRequests;
  flags.target.fields = fields_of(flags.target.fields, flags.ignore_end);
  if (const char* key = std::getenv("CHASKI_API_KEY")) flags.target.key = key;
  flags.target.url = endpoint_url(flags.url, flags.target.chat, !flags.target.key.empty());
}

std::string schedule_text(const LoadTestFlags& flags) {
  return flags.load.rate > 0
             ? fmt::format("Poisson arrivals of {:g} requests/s (open loop)", flags.load.rate)
             : fmt::format("{} (closed loop)", counted(uint64_t(flags.load.clients), "client"));
}

std::string title_of(const LoadTestFlags& flags) {
  return fmt::format("{}, model {}, {}, workload {}", flags.target.url, escaped(flags.target.model),
                     schedule_text(flags), flags.workload);
}

JsonValue json_of(const Distribution& d) {
  return {{"count", d.count}, {"p50", d.p50},   {"p90", d.p90},
          {"p99", d.p99},     {"mean", d.mean}, {"max", d.most}};
}

JsonValue json_of(const LoadTestFlags& flags, const LoadReport& report) {
  JsonValue json = {{"url", flags.target.url},
                    {"model", flags.target.model},
                    {"workload", flags.workload},
                    {"loop", flags.load.rate > 0 ? "open" : "closed"}};
  if (flags.load.rate > 0)
    json["rate"] = flags.load.rate;
  else
    json["clients"] = flags.load.clients;
  json.update({{"seed", flags.seed},
               {"requests", report.requests},
               {"answered", report.answered},
               {"seconds", report.seconds},
               {"first_token_seconds", json_of(report.first)},
               {"between_tokens_seconds", json_of(report.between)},
               {"answer_seconds", json_of(report.whole)},
               {"late_seconds", json_of(report.late)},
               {"tokens_an_event", report.tokens_an_event},
               {"tokens_from", report.counted ? "usage" : "events"},
               {"answer_tokens", report.answer_total},
               {"prompt_tokens", report.prompt_total},
               {"cached_tokens", report.cached_total},
               {"answer_tokens_per_second", report.a_second(double(report.answer_total))},
               {"prompt_tokens_per_second", report.a_second(double(report.prompt_total))},
               {"requests_per_second", report.a_second(report.answered)}});
  if (flags.limits().any()) {
    json["good"] = report.good;
    json["goodput_requests_per_second"] = report.a_second(report.good);
    if (flags.first_limit > 0) json["first_token_limit_seconds"] = flags.limits().first;
    if (flags.between_limit > 0) json["between_tokens_limit_seconds"] = flags.limits().between;
  }
  json["errors"] = JsonValue::array();
  for (const auto& [kind, errors] : report.errors)
    json["errors"].push_back(
        {{"kind", kind}, {"count", errors.count}, {"example", errors.example}});
  return json;
}

JsonValue json_of(const LoadRecord& record) {
  const LoadAnswer& answer = record.answer;
  JsonValue json = {{"number", record.number},
                    {"turn", record.turn},
                    {"scheduled_seconds", record.scheduled},
                    {"sent_seconds", record.sent},
                    {"end_seconds", record.end},
                    {"status", record.status},
                    {"events", answer.times.size()},
                    {"finish", answer.finish}};
  if (!answer.times.empty()) json["first_token_seconds"] = record.first();
  if (answer.prompt_tokens >= 0) json["prompt_tokens"] = answer.prompt_tokens;
  if (answer.cached_tokens >= 0) json["cached_tokens"] = answer.cached_tokens;
  if (answer.answer_tokens >= 0) json["answer_tokens"] = answer.answer_tokens;
  if (!answer.problem.empty()) json["error"] = answer.problem, json["detail"] = answer.detail;
  return json;
}

std::string goodput_line(const LoadTestFlags& flags, const LoadReport& report) {
  std::string limits;
  if (flags.first_limit > 0) limits = fmt::format("{:g} ms to the first token", flags.first_limit);
  if (flags.between_limit > 0)
    limits += fmt::format("{}{:g} ms between tokens (99% of an answer's)",
                          limits.empty() ? "" : " and ", flags.between_limit);
  return fmt::format("goodput     {:.4g} requests/s: {} of {} requests within {}\n",
                     report.a_second(report.good), report.good, report.requests, limits);
}

void put_report(const LoadTestFlags& flags, const LoadReport& report) {
  std::string text =
      title_of(flags) + "\n" +
      fmt::format("{} of {} answered in {:.1f} s\n", report.answered,
                  counted(uint64_t(report.requests), "request"), report.seconds) +
      "Times in ms, from each request's scheduled start, also if it was sent late (no coordinated "
      "omission).\n\n";
  const auto row = [](const char* name, const Distribution& d, double unit) {
    std::vector<std::string> cells = {name};
    for (const double value : {d.p50, d.p90, d.p99, d.mean, d.most})
      cells.push_back(fmt::format("{:.4g}", value / unit));
    return cells;
  };
  std::vector<std::vector<std::string>> rows = {{"", "p50", "p90", "p99", "mean", "max"},
                                                row("time to first token", report.first, kMilli),
                                                row("time between tokens", report.between, kMilli),
                                                row("whole answer", report.whole, kMilli),
                                                row("answer tokens", report.answer_tokens, 1)};
  if (report.prompt_tokens.count > 0) rows.push_back(row("prompt tokens", report.prompt_tokens, 1));
  text += table(rows, "<>>>>>") + "\n";
  text += fmt::format("throughput  {:.4g} answer tokens/s, ",
                      report.a_second(double(report.answer_total)));
  if (report.prompt_total > 0)
    text += fmt::format("{:.4g} prompt tokens/s ({:.0f}% cached), ",
                        report.a_second(double(report.prompt_total)),
                        100 * double(report.cached_total) / double(report.prompt_total));
  text += fmt::format("{:.4g} requests/s\n", report.a_second(report.answered));
  if (flags.limits().any()) text += goodput_line(flags, report);
  text += fmt::format(
      "client      99% of the requests were sent within {:.3g} ms of their scheduled time\n",
      report.late.p99 / kMilli);
  if (!report.counted)
    text += "tokens      the server did not count them: an event is taken for a token\n";
  else if (report.tokens_an_event > 1.05)
    text += fmt::format(
        "tokens      {:.2f} an event: the time between tokens above is the time between events\n",
        report.tokens_an_event);
  for (const auto& [kind, errors] : report.errors)
    text += fmt::format("errors      {} {}{}{}\n", errors.count, kind,
                        errors.example.empty() ? "" : ": ", escaped(errors.example));
  put(text);
}

int load_test(LoadTestFlags& flags) {
  complete(flags);
  const Workload workload(flags.words, flags.prompts.empty() ? "" : read_text(flags.prompts),
                          flags.prompts);
  if (!flags.svg.empty()) AtomicFile{flags.svg};  // refuses now what cannot be written
  const Interruption interruption(Interruption::Scope::program);
  if (flags.target.model.empty())
    flags.target.model = first_model_of(flags.target, &interruption.requested());
  LoadRun run;
  {
    const auto total = uint64_t(flags.load.requests);
    ProgressBar bar({double(total), "requests"});
    FileProgress progress{"", 0, total, 0, 0};
    if (total > 0) bar.show(progress);
    run = run_load(
        flags.target, workload, flags.load,
        [&](const LoadRecord& record) {
          if (flags.json.lines) put_event("request", json_of(record));
          ++progress.done;
          if (total > 0) bar.show(progress);
        },
        &interruption.requested());
  }
  const LoadReport report = report_of(run, flags.limits());
  if (report.answered == 0 && interruption.signal() != 0) end_by_signal(interruption.signal());
  if (report.answered == 0) {
    const auto most = std::ranges::max_element(
        report.errors, {}, [](const auto& errors) { return errors.second.count; });
    if (most == report.errors.end()) fail(Exit::usage, "no request was due within --duration");
    fail(Exit::io, "{}: none of {} was answered; {}: {}", flags.target.url,
         counted(uint64_t(report.requests), "request"), most->first, most->second.example);
  }
  if (flags.json.any())
    flags.json.put_result(json_of(flags, report));
  else
    put_report(flags, report);
  if (!flags.svg.empty()) write_load_chart(flags.svg, run, report, flags.limits(), title_of(flags));
  if (interruption.signal() != 0) end_by_signal(interruption.signal());
  return int(Exit::done);
}

void declare_schedule(Flags& parser, LoadTestFlags& flags) {
  parser.heading("Schedule");
  const Flag rate = parser
                        .add("--rate", flags.load.rate,
                             "open loop: requests a second on average, with the random gaps of "
                             "independent users (Poisson)")
                        .type("R");
  parser
      .add("--clients", flags.load.clients,
           "closed loop: clients that each send the next request after an answer (default {})")
      .within(1, 1 << 16)
      .excludes(rate)
      .type("N");
  flags.requests = parser
                       .add("-n,--requests", flags.load.requests,
                            "requests to send (default 64; no limit with --duration)")
                       .within(1, kMaxCount)
                       .type("N");
  flags.duration = parser
                       .add("--duration", flags.load.duration,
                            "seconds after which no request begins (default: no limit)")
                       .type("S");
  parser.add("--seed", flags.seed, "seed of arrivals, prompts and lengths (default {})")
      .within(0, kMaxCount)
      .type("N");
  parser.add("--timeout", flags.target.timeout, "seconds for one request (default {})").type("S");
}

void declare_workload(Flags& parser, LoadTestFlags& flags) {
  parser.heading("Workload");
  parser
      .add("--workload", flags.workload,
           "single: independent prompts. prefix: all begin with the same text. chat: conversations "
           "that send all earlier turns again (default {})")
      .one_of({"single", "prefix", "chat"})
      .type("KIND");
  parser
      .add("-f,--prompts", flags.prompts,
           "file of prompts, one a line: text, {\"prompt\": ...} or {\"messages\": [...]} "
           "(default: random English words)")
      .not_empty("a file")
      .type("FILE");
  parser
      .add("--prompt-tokens", flags.prompt_tokens,
           "length of a random prompt, such as 200 or 100-400; one word is about one token "
           "(default {})")
      .type("N");
  parser
      .add("--answer-tokens", flags.answer_tokens,
           "limit of an answer, such as 128 or 64-256 (default {})")
      .type("N");
  flags.prefix = parser
                     .add("--prefix-tokens", flags.words.prefix_tokens,
                          "length of the shared text of --workload prefix (default {})")
                     .within(1, 1 << 24)
                     .type("N");
  flags.turns = parser
                    .add("--turns", flags.words.turns,
                         "requests of a conversation of --workload chat (default {})")
                    .within(1, 1 << 16)
                    .type("N");
  flags.pause = parser
                    .add("--pause", flags.load.pause,
                         "seconds between an answer and the next turn of --workload chat "
                         "(default {})")
                    .type("S");
  parser.add_switch("--ignore-end", flags.ignore_end,
                    "ask for answers of full length (ignore_eos, which OpenAI's own service "
                    "does not know)");
}

}  // namespace

Action declare_load_test(Flags parser) {
  auto flags = std::make_shared<LoadTestFlags>();
  parser
      .add("URL", flags->url,
           "address of the server, with or without /v1; an API key comes from CHASKI_API_KEY")
      .not_empty("a URL")
      .required();
  parser
      .add("--model-name", flags->target.model,
           "model to ask for (default: the first that the server lists)")
      .not_empty("a name")
      .type("NAME");
  parser
      .add("--endpoint", flags->endpoint,
           "chat: /v1/chat/completions. completions: /v1/completions (default {})")
      .one_of({"chat", "completions"})
      .type("NAME");
  parser
      .add("--body", flags->target.fields,
           "JSON object to merge into each request, such as {\"temperature\": 0}; null removes a "
           "field")
      .type("JSON");
  declare_schedule(parser, *flags);
  declare_workload(parser, *flags);
  parser.heading("Report");
  parser
      .add("--ttft-limit", flags->first_limit,
           "ms to the first token within which a request counts for goodput")
      .type("MS");
  parser
      .add("--itl-limit", flags->between_limit,
           "ms between tokens within which a request counts for goodput (99% of its gaps)")
      .type("MS");
  parser.add("--svg", flags->svg, "also draw both distributions and each request over time")
      .not_empty("a file")
      .type("FILE");
  declare_json(parser, flags->json);
  parser.example("Four users, each with one request at a time",
                 "chaski load-test http://127.0.0.1:8080 --clients 4 -n 16");
  parser.example("Two requests a second, and the share that is fast enough",
                 "chaski load-test http://127.0.0.1:8080 --rate 2 --duration 5 --ttft-limit 500 "
                 "--itl-limit 50");
  parser.example("Conversations, with a chart",
                 "chaski load-test http://127.0.0.1:8080 --workload chat --turns 3 -n 12 --svg "
                 "load.svg");
  return [flags] { return load_test(*flags); };
}

}  // namespace chaski
