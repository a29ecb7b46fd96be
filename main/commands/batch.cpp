// `chaski batch`: answers a file of requests, several at once. The requests have the form of
// OpenAI's batches, and main/api answers them as `chaski serve` does.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "engine/requests/answer_cache.h"
#include "engine/requests/prompt_scores.h"
#include "engine/requests/serving.h"
#include "main/api/openai.h"
#include "main/api/routes.h"
#include "main/commands/batch_files.h"
#include "main/commands/speaker.h"
#include "main/flags/commands.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace {

// More requests at once gain little on a CPU and need memory.
constexpr int kAutomatic = 16, kMostJobs = 64;
// Results that wait for an earlier line, for each job.
constexpr size_t kWaiting = 8;

struct BatchFlags {
  GenerationFlags generation;
  std::string in, out, jobs = "auto", think = "on", chat_template;
  bool unordered = false;
};

// Keeps the whole response.
class Kept : public Reply {
 public:
  explicit Kept(const std::atomic<bool>& gone) : gone_(gone) {}
  void whole(int status, const char*, const std::string& body) override {
    this->status = status, this->body = body;
  }
  void begin(const char*) override {}
  void part(const std::string&) override {}
  void end() override {}
  const std::atomic<bool>& gone() const override { return gone_; }

  int status = 500;
  std::string body;

 private:
  const std::atomic<bool>& gone_;
};

struct BatchRequest {
  std::string custom_id, url, body;
};

BatchRequest read_request(const BatchLine& line, std::string& custom_id) {
  Body body(line.text);
  const Field fields = body.fields();
  if (const auto id = fields.find("custom_id")) custom_id = id->text();
  const bool chat = fields.find("messages").has_value();
  BatchRequest request;
  OrderedJson inner;
  if (const auto wrapped = fields.find("body")) {
    if (const auto method = fields.find("method")) method->one_of({"POST"});
    request.url =
        fields["url"].one_of({"/v1/chat/completions", "/v1/completions", "/v1/responses"});
    if (!wrapped->is_object()) wrapped->wrong("an object");
    inner = wrapped->whole_json();
  } else if (chat || fields.find("prompt") || fields.find("input")) {
    request.url = chat                    ? "/v1/chat/completions"
                  : fields.find("prompt") ? "/v1/completions"
                                          : "/v1/responses";
    inner = fields.whole_json();
    inner.erase("custom_id");
  } else {
    refuse_field("", "the line has no body, messages, prompt or input, expected one of them");
  }
  const auto stream = inner.find("stream");
  if (stream != inner.end() && *stream == true)
    refuse_field("stream", "is true, expected false: a batch has whole answers");
  if (const auto id = inner.find("previous_response_id"); id != inner.end() && !id->is_null())
    refuse_field("previous_response_id", "is given, but a line does not see the answers to others");
  request.body = written(inner);
  return request;
}

// The same bytes in every run: without times, random ids and what the prefix cache had.
OrderedJson repeatable(const std::string& text, const std::string& id) {
  OrderedJson body = parsed_json(text);
  if (body.contains("id")) body["id"] = id;
  for (const char* name : {"created", "created_at"})
    if (body.contains(name)) body[name] = 0;
  body.erase("timings");
  if (body.contains("usage"))
    for (const char* name : {"prompt_tokens_details", "input_tokens_details"})
      body["usage"].erase(name);
  if (body.contains("output"))  // items of /v1/responses
    for (size_t i = 0; i < body["output"].size(); ++i)
      body["output"][i]["id"] = fmt::format("{}_{}", id, i);
  return body;
}

class BatchRun {
 public:
  BatchRun(const BatchFlags& flags, int jobs, std::shared_ptr<ServedModel> served,
           Interruption& interruption)
      : flags_(flags),
        jobs_(jobs),
        interruption_(interruption),
        interrupt_(interruption.requested()),
        served_(std::move(served)),
        inbox_(served_->model, 0, 0),
        key_(key_of(*served_)),
        input_(flags.in, key_),
        output_(flags.out) {
    bar_.emplace(ProgressScale{double(input_.count()), "lines"});
    served_->generate = [this](std::span<const TokenId> prompt, const GenerateOptions& options,
                               const Sink& sink) {
      return generate(inbox_, prompt, options, sink);
    };
    served_->score = [this](std::span<const TokenId> prompt, int most,
                            const std::atomic<bool>& gone) {
      return prompt_scores(inbox_, prompt, most, gone);
    };
    api_.model = [this](const ModelWish&) { return served_; };
    api_.most_running = jobs;
  }

  // Returns whether all lines have a result without an error.
  bool answer_all_lines() {
    check_earlier();
    check_waiting();
    std::vector<std::thread> threads;
    try {
      for (int i = 0; i < jobs_; ++i) threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // no more threads: these answer all lines
    }
    if (threads.empty()) work();
    for (std::thread& thread : threads) thread.join();
    bar_.reset();
    if (error_) throw *error_;
    if (interrupt_) {
      put_interrupted();
    } else {
      output_.all_are_written();
      put_result();
    }
    return failed_ == 0;
  }

 private:
  static constexpr TokenId kNoPrompt[] = {0};

  // Everything but the lines that decides the results.
  static std::string key_of(const ServedModel& served) {
    GenerateOptions options;
    static_cast<RequestSettings&>(options) = served.defaults.request;
    return fmt::format("{} {} {}\n", AnswerKeys(served.engine()).key(kNoPrompt, options),
                       served.defaults.thinks, served.chat_template.text);
  }

  // Checks that the results in OUT are those of the first lines of IN, or with --unordered of any
  // lines.
  void check_earlier() {
    const std::map<size_t, BatchResult>& earlier = output_.earlier();
    if (earlier.empty()) return;
    if (flags_.in == "-")
      fail(Exit::usage,
           "{} has results of an earlier run; standard input cannot be compared with them, "
           "expected a file as IN",
           flags_.out);
    BatchInput again(flags_.in, key_);
    while (answered_before_ < earlier.size()) {
      const std::optional<BatchLine> line = again.next();
      if (!line)
        fail(Exit::usage, "{} has the result of line {}, but {} ends before", flags_.out,
             earlier.rbegin()->first, flags_.in);
      const auto found = earlier.find(line->number);
      if (found == earlier.end() && flags_.unordered) continue;
      if (found == earlier.end() || !(flags_.unordered || output_.in_order()))
        fail(Exit::usage, "{}: the results are not in the order of the lines, expected --unordered",
             flags_.out);
      if (found->second.sum != line->sum)
        fail(Exit::usage,
             "{}: the result of line {} is of another request, model or setting, expected another "
             "name for the results",
             flags_.out, line->number);
      failed_ += found->second.failed;
      ++answered_before_;
    }
    done_ = answered_before_;
  }

  // Finds out which waiting results of an earlier run are still those of their lines.
  void check_waiting() {
    if (output_.waiting().empty() || flags_.in == "-") return;
    std::set<size_t> same;
    BatchInput again(flags_.in, key_);
    while (const std::optional<BatchLine> line = again.next()) {
      const auto found = output_.waiting().find(line->number);
      if (found != output_.waiting().end() && found->second.sum == line->sum)
        same.insert(line->number);
    }
    output_.use_waiting(same);
  }

  std::optional<BatchLine> next() {
    const std::scoped_lock lock(taking_);
    std::optional<BatchLine> line = input_.next();
    while (line && output_.earlier().contains(line->number)) line = input_.next();
    if (!line) return std::nullopt;
    const std::scoped_lock also(mutex_);
    order_.push_back(line->number);
    return line;
  }

  void work() {
    try {
      while (!interrupt_ && !stop_) {
        const std::optional<BatchLine> line = next();
        if (!line) break;
        if (std::optional<BatchResult> finished = output_.take_waiting(*line)) {
          count_earlier(*finished);
          write(line->number, std::move(finished->text));
          continue;
        }
        std::string result = answer(*line);
        if (!interrupt_) write(line->number, std::move(result));
      }
    } catch (const Error& error) {
      end_with(error);
    } catch (const std::exception& error) {
      end_with(Error(Exit::memory, error.what()));
    }
    const std::scoped_lock lock(mutex_);
    written_.notify_all();
  }
  void count_earlier(const BatchResult& result) {
    const std::scoped_lock lock(mutex_);
    failed_ += result.failed;
    ++answered_before_;
  }
  void end_with(const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = error;
    stop_ = true;
  }

  std::string answer(const BatchLine& line) {
    const std::string id = fmt::format("batch_req_{}", line.number);
    Kept reply(interrupt_);
    std::string custom_id;
    try {
      const BatchRequest request = read_request(line, custom_id);
      bool other_method = false;
      const Endpoint* const route = find_route("POST", request.url, &other_method);
      ENSURE(route, "every endpoint of a batch must have a route");
      answer_call(api_, *route, {"", request.body}, reply);
    } catch (const ApiError& error) {
      reply.whole(error.status, "", written(openai_error(error)));
    }
    if (interrupt_) return "";  // not written
    OrderedJson out = {{"id", id}, {"line", line.number}, {"custom_id", nullptr}};
    if (!custom_id.empty()) out["custom_id"] = custom_id;
    OrderedJson body = repeatable(reply.body, id);
    // A line that memory does not hold must not keep the others from their answers.
    const bool is_result = reply.status < 500 || body["error"]["code"] == "out_of_memory";
    if (!is_result) throw passing_fault(line.number, reply.status, body["error"]);
    {
      const std::scoped_lock lock(mutex_);
      failed_ += reply.status != 200;
      if (reply.status != 200) {
        const std::pair error(line.number, body["error"]["message"].get<std::string>());
        first_error_ = std::min(first_error_.value_or(error), error);
      }
    }
    out["response"] = {{"status_code", reply.status}, {"request_id", line.sum}};
    out["response"]["body"] = std::move(body);
    out["error"] = nullptr;
    return written(out);
  }

  // A fault of the machine or of a pass may pass by: it is no result of its line.
  static Error passing_fault(size_t number, int status, const OrderedJson& error) {
    const Exit code = status == 503                   ? Exit::memory
                      : error["code"] == "non_finite" ? Exit::non_finite
                                                      : Exit::device;
    return {code, fmt::format("line {}: {}", number, error["message"].get<std::string>())};
  }

  // Writes a result when those of all lines before it are written. A job that is far ahead waits.
  void write(size_t number, std::string result) {
    std::unique_lock lock(mutex_);
    if (out_failed_) return;
    results_.emplace(number, std::move(result));
    const auto writable = [&] {
      if (flags_.unordered) return results_.begin();
      return order_.empty() ? results_.end() : results_.find(order_.front());
    };
    for (auto at = writable(); at != results_.end(); at = writable()) {
      try {
        output_.write(at->first, at->second);
      } catch (...) {
        out_failed_ = true;       // before another job gets the lock and writes after it
        interruption_.request();  // no other answer can be written
        throw;
      }
      std::erase(order_, at->first);
      results_.erase(at);
      ++done_;
    }
    const auto waits = results_.find(number);
    if (waits != results_.end() && flags_.in != "-") output_.keep_waiting(number, waits->second);
    show();
    written_.notify_all();
    written_.wait(
        lock, [&] { return stop_ || interrupt_ || results_.size() < kWaiting * size_t(jobs_); });
  }

  double seconds() const {  // since the start
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  void show() {
    if (input_.count() == 0) return;
    const Inbox::Facts facts = inbox_.facts();
    bar_->show({.tensor = fmt::format("{:.4g} tok/s, width {}",
                                      double(facts.counts.tokens) / seconds(), facts.totals.width),
                .done = done_,
                .total = input_.count()});
  }

  void put_interrupted() const {
    const bool is_one = input_.count() == 0 && done_ == 1;
    std::string line =
        fmt::format("interrupted: {}{} {} answered in {}", done_,
                    input_.count() > 0 ? fmt::format(" of {} lines", input_.count())
                    : is_one           ? " line"
                                       : " lines",
                    is_one ? "is" : "are", flags_.out == "-" ? "standard output" : flags_.out);
    const size_t waiting = output_.kept_waiting();
    if (!output_.can_continue())
      line += ", which cannot be continued";
    else if (flags_.in == "-")
      line += "; it cannot be continued, because standard input is not read twice";
    else if (waiting > 0)
      line +=
          fmt::format("; {} {} in {}; the same command continues", counted(waiting, "later answer"),
                      waiting == 1 ? "waits" : "wait", output_.path_of_waiting());
    else
      line += "; the same command continues";
    put_notice(line);
  }

  // "1 request", "2.75 requests"
  static std::string mean_requests(const Scheduler::Totals& totals) {
    const double mean = totals.passes > 0 ? double(totals.widths) / double(totals.passes) : 0;
    const std::string number = fmt::format("{:.3g}", mean);
    return number + (number == "1" ? " request" : " requests");
  }

  void put_result() {
    inbox_.wait_until_idle();
    const Inbox::Facts facts = inbox_.facts();
    std::string line = counted(done_ - answered_before_, "line") + " answered";
    if (answered_before_ > 0) line += fmt::format(" after {} of an earlier run", answered_before_);
    line += fmt::format(
        "; {} of prompts read, {} from the prefix cache; {} generated, {:.4g} tok/s, {} a pass",
        counted(uint64_t(facts.totals.prompt_tokens), "token"), facts.totals.prefix_tokens,
        counted(uint64_t(facts.counts.tokens), "token"), double(facts.counts.tokens) / seconds(),
        mean_requests(facts.totals));
    if (failed_ > 0) line += fmt::format("; {} with an error", counted(failed_, "line"));
    if (first_error_)
      line +=
          fmt::format(", the first{} is line {}: {}", answered_before_ > 0 ? " of this run" : "",
                      first_error_->first, first_error_->second);
    put_summary(line);
  }

  const BatchFlags& flags_;
  const int jobs_;
  Interruption& interruption_;
  const std::atomic<bool>& interrupt_;  // its flag
  const std::shared_ptr<ServedModel> served_;
  Inbox inbox_;
  const std::string key_;
  BatchInput input_;
  BatchOutput output_;
  Api api_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  size_t answered_before_ = 0;
  std::mutex taking_;  // lines are taken in the order of their numbers
  std::mutex mutex_;   // guards what follows
  std::condition_variable written_;
  std::vector<size_t> order_;              // numbers of lines that are taken and not written
  std::map<size_t, std::string> results_;  // that wait for an earlier line
  size_t done_ = 0, failed_ = 0;
  std::optional<std::pair<size_t, std::string>> first_error_;  // of this run: its line and message
  std::optional<Error> error_;
  std::atomic<bool> stop_ = false;
  bool out_failed_ = false;
  std::optional<ProgressBar> bar_;  // until the last line is answered
};

// The model with memory for `jobs` sequences; 0: as many as fit, at most kAutomatic.
std::shared_ptr<LoadedModel> open_for(GenerationFlags& flags, int& jobs) {
  const bool automatic = jobs == 0;
  for (jobs = automatic ? kAutomatic : jobs;; jobs /= 2) try {
      flags.model.engine.sessions = jobs;
      return open_loaded_model(flags);
    } catch (const Error& error) {
      if (error.code != Exit::memory || !automatic || jobs == 1) throw;
    }
}

int batch(BatchFlags& flags) {
  GenerationFlags& generation = flags.generation;
  generation.resolve_config_conflicts();
  generation.check();
  expect_no_grammar(generation);
  if (flags.in != "-" && flags.in == flags.out)
    fail(Exit::usage, "{} is the name of the requests and of the results", flags.in);
  const auto served = std::make_shared<ServedModel>();
  served->chat_template = template_of(flags.chat_template);
  int jobs = flags.jobs == "auto" ? 0 : std::stoi(flags.jobs);
  Interruption interruption(Interruption::Scope::program);
  served->model = open_for(generation, jobs);
  served->name = served_name(generation.model.engine.model);
  served->defaults.request = generation.generate;
  served->defaults.request.context_policy = context_policy_of(generation.context_policy);
  served->defaults.random_seed = false;
  served->defaults.thinks = flags.think == "on";
  const bool all_right = BatchRun(flags, jobs, served, interruption).answer_all_lines();
  if (interruption.signal() != 0) end_by_signal(interruption.signal());
  return int(all_right ? Exit::done : Exit::failed_lines);
}

}  // namespace

Action declare_batch(Flags parser) {
  auto flags = std::make_shared<BatchFlags>();
  parser
      .add("IN", flags->in,
           "requests, one JSON object a line: OpenAI's batch format, {\"prompt\": ...}, "
           "{\"input\": ...} or {\"messages\": [...]} with settings; - is standard input")
      .required();
  parser
      .add("OUT", flags->out,
           "results, one a line; a file that has some of them is continued; - is standard output")
      .required();
  parser
      .add("--jobs", flags->jobs,
           "requests at once; auto: as many as memory holds, at most 16 (default {}); the results "
           "do not depend on it")
      .one_of({"auto"}, 1, kMostJobs)
      .type("N");
  parser.add_switch("--unordered", flags->unordered,
                    "write each result when it is ready, not in the order of the lines");
  flags->generation.declare(parser);
  hide_grammar_flags(parser);
  declare_chat_template(parser, flags->chat_template);
  parser
      .add("--think", flags->think,
           "whether models that can think do so, unless the request says it (default {})")
      .one_of({"on", "off"})
      .type("HOW");
  parser.named("--seed").help("seed of lines without one (default 0)");
  parser.table({"Exit status",
                {{"0", "every line has an answer"},
                 {"10", "some lines have an error in their result; the others have answers"}}});
  parser.example("Answer a file of requests",
                 "chaski batch -m model.gguf requests.jsonl results.jsonl");
  parser.example("Write each result when it is ready",
                 "chaski batch -m model.gguf --unordered requests.jsonl - > ready.jsonl");
  parser.example(
      "One request from a pipe",
      "echo '{\"prompt\": \"Once upon a time\", \"max_tokens\": 20}' | chaski batch - -");
  return [flags] { return batch(*flags); };
}

}  // namespace chaski
