// chaski batch with the real program: order, bad lines, resuming after a kill, any number of jobs.
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "ggml-like-tensor/file/quipu.h"
#include "tests/kit/memory_group.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

const char* const kOpenings[] = {"Once upon a time", "The cat", "Lily and Mom", "A dog"};

// Request `i` with its own seed, in one of three forms.
json request(int i) {
  json body = {{"max_tokens", 12 + i % 9}, {"seed", i}, {"temperature", 0.8}};
  if (i % 3 == 0) {
    body["messages"] = {{{"role", "user"}, {"content", kOpenings[i % 4]}}};
    return {{"custom_id", "chat-" + std::to_string(i)},
            {"method", "POST"},
            {"url", "/v1/chat/completions"},
            {"body", body}};
  }
  body["prompt"] = kOpenings[i % 4];
  if (i % 3 == 1) return body;
  return {{"custom_id", "text-" + std::to_string(i)},
          {"method", "POST"},
          {"url", "/v1/completions"},
          {"body", body}};
}

std::string requests(int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += request(i).dump() + "\n";
  return all;
}

Arguments batch(const std::string& in, const std::string& out, const Arguments& more = {}) {
  Arguments all = {"batch", "-m", kStory, in, out, "--device", "cpu"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string answer_of(const json& result) {
  const json& choice = result.at("response").at("body").at("choices").at(0);
  return choice.contains("text") ? choice.at("text") : choice.at("message").at("content");
}

}  // namespace

TEST_CASE("batch: each text is that of run alone, in the order of the lines, for any --jobs") {
  const TempFolder folder;
  constexpr int kLines = 14;
  write_file(folder / "in", requests(kLines));
  const Outcome one = chaski_run(batch(folder / "in", folder / "one", {"--jobs", "1"}));
  CHECK_MESSAGE(one.status == 0, one.err);
  CHECK(one.out.empty());
  CHECK_MESSAGE(chaski_run(batch(folder / "in", folder / "eight", {"--jobs", "8"})).status == 0,
                one.err);
  const std::string results = read_file(folder / "one");
  CHECK(read_file(folder / "eight") == results);
  const std::vector<std::string> lines = lines_of(results);
  REQUIRE(lines.size() == kLines);
  for (int i = 0; i < kLines; ++i) {
    const json result = json::parse(lines[size_t(i)]), asked = request(i);
    CHECK(result["line"] == i + 1);
    CHECK(result["custom_id"] == (asked.contains("custom_id") ? asked["custom_id"] : json()));
    CHECK(result["response"]["status_code"] == 200);
    if (i > 2) continue;
    const json& body = asked.contains("body") ? asked["body"] : asked;
    const std::string n = std::to_string(body["max_tokens"].get<int>()), seed = std::to_string(i);
    const Outcome alone = i % 3 == 0
                              ? chaski_run({"chat", "-m", kStory, "-p", kOpenings[i % 4], "-n", n,
                                            "--seed", seed, "--temp", "0.8", "--json"})
                              : chaski_run({"run", "-m", kStory, "-p", kOpenings[i % 4], "-n", n,
                                            "--seed", seed, "--temp", "0.8", "--json"});
    CHECK_MESSAGE(json::parse(alone.out)["text"] == answer_of(result), alone.err);
  }
  // Standard input and output.
  const Outcome piped = chaski_run(batch("-", "-"), requests(kLines));
  CHECK(piped.status == 0);
  CHECK(piped.out == results);
  // A complete file stays as it is.
  CHECK(chaski_run(batch(folder / "in", folder / "one")).status == 0);
  CHECK(read_file(folder / "one") == results);
}

TEST_CASE("batch: a bad line gets its error and a status of 10, and the others are answered") {
  const TempFolder folder;
  std::string in = request(1).dump() + "\n{\"prompt\": \n\n";
  in += json{{"prompt", "A"}, {"temperature", "hot"}}.dump() + "\n";
  in += json{{"custom_id", "x"}, {"url", "/v1/images"}, {"body", json::object()}}.dump() + "\n";
  in += json{{"prompt", "A"}, {"max_tokens", 3}, {"stream", true}}.dump() + "\n";
  in += json{{"hello", 1}}.dump() + "\n" + std::string(3000, '[') + "\n";
  in += json{{"input", "A"}, {"previous_response_id", "resp_1"}}.dump() + "\n";
  in += json{{"input", "A"}, {"max_output_tokens", 3}}.dump() + "\n";
  in += request(2).dump();  // without a line end
  write_file(folder / "in", in);
  const Outcome outcome = chaski_run(batch(folder / "in", folder / "out"));
  CHECK_MESSAGE(outcome.status == 10, outcome.err);
  const std::vector<std::string> lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == 10);
  const json first = json::parse(lines[1])["response"]["body"]["error"]["message"];
  CHECK_MESSAGE(
      outcome.error_says("; 7 lines with an error, the first is line 2: " + std::string(first)),
      outcome.err);
  const int numbers[] = {1, 2, 4, 5, 6, 7, 8, 9, 10, 11};
  for (size_t i = 0; i < lines.size(); ++i) {
    const json result = json::parse(lines[i]);
    CHECK(result["line"] == numbers[i]);
    const bool good = i == 0 || i >= 8;
    CHECK(result["response"]["status_code"] == (good ? 200 : 400));
    if (!good) CHECK(!result["response"]["body"]["error"]["message"].empty());
  }
  CHECK(json::parse(lines[2])["response"]["body"]["error"]["param"] == "temperature");
  CHECK(json::parse(lines[3])["custom_id"] == "x");
  const json response = json::parse(lines[8])["response"]["body"];
  CHECK(response["object"] == "response");
  CHECK(response["created_at"] == 0);
  CHECK(response["output"][0]["id"] == "batch_req_10_0");
}

TEST_CASE("batch: after a kill it continues without a lost or doubled line") {
  const TempFolder folder;
  constexpr int kLines = 24;
  write_file(folder / "in", requests(kLines));
  CHECK(chaski_run(batch(folder / "in", folder / "whole")).status == 0);
  const std::string whole = read_file(folder / "whole");
  for (const bool unordered : {false, true}) {
    CAPTURE(unordered);
    const std::string out = folder / (unordered ? "unordered" : "ordered");
    Arguments all = batch(folder / "in", out, {"--jobs", "4"});
    if (unordered) all.push_back("--unordered");
    // Kills it when the file has a third, then two thirds of the bytes.
    for (const size_t bytes : {whole.size() / 3, whole.size() * 2 / 3}) {
      Program program(all, "");
      std::error_code none;
      while (!std::filesystem::exists(out) || std::filesystem::file_size(out, none) < bytes)
        std::this_thread::yield();
      program.signal(SIGKILL);
      program.wait();
      // What a kill in the middle of a write leaves.
      std::ofstream(out, std::ios::app) << "{\"id\":\"batch_req_";
    }
    const Outcome last = chaski_run(all);
    CHECK_MESSAGE(last.status == 0, last.err);
    std::vector<std::string> lines = lines_of(read_file(out)), want = lines_of(whole);
    if (unordered) std::ranges::sort(lines), std::ranges::sort(want);
    CHECK(lines == want);
  }
}

// Waits until a program has opened the file.
void until_open(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;  // processes end meanwhile
  const fs::path wanted = fs::weakly_canonical(path);
  const auto is_open = [&] {
    const fs::directory_iterator end;
    for (fs::directory_iterator process("/proc", none); process != end; process.increment(none))
      for (fs::directory_iterator file(process->path() / "fd", none); file != end;
           file.increment(none))
        if (fs::read_symlink(file->path(), none) == wanted) return true;
    return false;
  };
  for (int tries = 0; tries < 3000; ++tries) {
    if (is_open()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL("no program has opened ", path);
}

// The first line has a long answer, which the short ones wait for.
std::string one_long_request(int lines) {
  std::string all =
      json{{"prompt", "Once upon a time"}, {"max_tokens", 480}, {"ignore_eos", true}, {"seed", 1}}
          .dump() +
      "\n";
  for (int i = 1; i < lines; ++i)
    all += json{{"prompt", kOpenings[i % 4]}, {"max_tokens", 2}, {"seed", i}}.dump() + "\n";
  return all;
}

TEST_CASE("batch: answers that wait for a longer one survive Ctrl-C and a kill") {
  const TempFolder folder;
  constexpr int kLines = 12;
  const std::string in = write_file(folder / "in", one_long_request(kLines)), out = folder / "out",
                    waiting = folder / ".out.waiting";
  CHECK(chaski_run(batch(in, folder / "whole")).status == 0);
  CHECK(!std::filesystem::exists(folder / ".whole.waiting"));
  const std::string whole = read_file(folder / "whole");
  setenv("CHASKI_ISA", "scalar", 1);  // slow
  const auto stopped = [&](int signal, const Arguments& more) {
    Arguments all = batch(in, out, {"--jobs", "4"});
    all.insert(all.end(), more.begin(), more.end());
    Program program(all, "");
    until_open(out);
    for (int tries = 0; tries < 3000 && lines_of(read_file(waiting)).size() < kLines - 1; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    until_open(waiting);
    program.signal(signal);
    return program.wait();
  };
  const Outcome interrupted = stopped(SIGINT, {});
  CHECK(interrupted.status == 130);
  CHECK(interrupted.err == "chaski: note: interrupted: 0 of 12 lines are answered in " + out +
                               "; 11 later answers wait in " + waiting +
                               "; the same command continues\n");
  const std::string kept = read_file(waiting);
  CHECK(lines_of(kept).size() == kLines - 1);
  CHECK(read_file(out).empty());
  // The next run computes none of them again.
  const Outcome terminated = stopped(SIGTERM, {"-q"});
  CHECK(terminated.status == 143);
  CHECK(terminated.err.empty());
  CHECK(read_file(waiting) == kept);
  CHECK(stopped(SIGKILL, {}).status == 137);
  CHECK(read_file(waiting) == kept);
  unsetenv("CHASKI_ISA");
  std::ofstream(waiting, std::ios::app) << "{\"id\":\"batch_req_";
  const Outcome last = chaski_run(batch(in, out, {"--jobs", "4"}));
  CHECK_MESSAGE(last.status == 0, last.err);
  CHECK_MESSAGE(last.error_says("1 line answered after 11 of an earlier run"), last.err);
  CHECK(read_file(out) == whole);
  CHECK(!std::filesystem::exists(waiting));
}

TEST_CASE("batch: waiting answers of other settings are not used, and a foreign file is refused") {
  const TempFolder folder;
  const std::string in = write_file(folder / "in", one_long_request(4)), out = folder / "out",
                    waiting = folder / ".out.waiting";
  CHECK(chaski_run(batch(in, folder / "other", {"--top-k", "3"})).status == 0);
  CHECK(chaski_run(batch(in, folder / "whole")).status == 0);
  const std::vector<std::string> other = lines_of(read_file(folder / "other"));
  write_file(waiting, other[1] + "\n" + other[3] + "\n");
  CHECK(chaski_run(batch(in, out)).status == 0);
  CHECK(read_file(out) == read_file(folder / "whole"));
  CHECK(!std::filesystem::exists(waiting));
  // --unordered writes them at once.
  std::filesystem::remove(out);
  const std::vector<std::string> whole = lines_of(read_file(folder / "whole"));
  write_file(waiting, whole[3] + "\n" + whole[1] + "\n");
  CHECK(chaski_run(batch(in, out, {"--unordered", "--jobs", "1"})).status == 0);
  CHECK(lines_of(read_file(out)) == whole);
  write_file(waiting, "Dear Tim,\n");
  check_one_line(chaski_run(batch(in, folder / "out")), 2,
                 ".out.waiting: line 1 is not a result of a batch");
  CHECK(read_file(waiting) == "Dear Tim,\n");
}

TEST_CASE("batch: Ctrl-C says how many lines are answered, and whether it can be continued") {
  const TempFolder folder;
  const std::string in = write_file(folder / "in", one_long_request(1));
  setenv("CHASKI_ISA", "scalar", 1);
  const auto said = [&](const Arguments& all) {
    Program program(all, read_file(in));
    until_open(all[4] == "-" ? in : all[4]);  // OUT, or IN
    program.signal(SIGINT);
    const Outcome outcome = program.wait();
    CHECK(outcome.status == 130);
    return outcome.err;
  };
  CHECK(said(batch(in, folder / "out")) ==
        "chaski: note: interrupted: 0 of 1 lines are answered in " + folder / "out" +
            "; the same command continues\n");
  CHECK(said(batch(in, "-")) ==
        "chaski: note: interrupted: 0 of 1 lines are answered in standard output, which cannot be "
        "continued\n");
  // Waiting answers of other lines and settings are not counted: they will not be used.
  const std::string shorter = write_file(folder / "short", one_long_request(3));
  CHECK(chaski_run(batch(shorter, folder / "done", {"--top-k", "3"})).status == 0);
  const std::vector<std::string> others = lines_of(read_file(folder / "done"));
  write_file(folder / ".out.waiting", others[1] + "\n" + others[2] + "\n");
  CHECK(said(batch(in, folder / "out")) ==
        "chaski: note: interrupted: 0 of 1 lines are answered in " + folder / "out" +
            "; the same command continues\n");
  CHECK(said(batch("-", folder / "piped")) ==
        "chaski: note: interrupted: 0 lines are answered in " + folder / "piped" +
            "; it cannot be continued, because standard input is not read twice\n");
  unsetenv("CHASKI_ISA");
}

TEST_CASE("batch: a file that is not a result of these requests is refused and stays as it is") {
  const TempFolder folder;
  write_file(folder / "in", requests(3));
  const auto refused = [&](const std::string& out, const std::string& says,
                           const Arguments& more = {}) {
    const std::string before = read_file(out);
    const Outcome outcome = chaski_run(batch(folder / "in", out, more));
    CHECK(outcome.status == 2);
    CHECK_MESSAGE(outcome.error_says(says), outcome.err);
    CHECK(read_file(out) == before);
  };
  write_file(folder / "letter", "Dear Tim,\n");
  refused(folder / "letter", "line 1 is not a result of a batch");
  write_file(folder / "word", "Dear Tim");
  refused(folder / "word", "is not a result of a batch");
  CHECK(chaski_run(batch(folder / "in", folder / "out")).status == 0);
  refused(folder / "out", "the result of line 1 is of another request, model or setting",
          {"--top-k", "3"});
  write_file(folder / "in", requests(2));
  refused(folder / "out", "has the result of line 3, but");
  write_file(folder / "in", "{}\n" + requests(3));
  refused(folder / "out", "of another request");
}

TEST_CASE("batch: a pipe as IN is refused: it would have no lines when it is read again") {
  const TempFolder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int end = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  const Outcome outcome = chaski_run(batch(pipe, folder / "out"));
  close(end);
  check_one_line(outcome, 2, "is a pipe, which cannot be read twice");
}

TEST_CASE("batch: a fault of a pass ends it, and is no result") {
  const TempFolder folder;
  ModelSource source = source_of(open_quipu(kStory));
  for (TensorSource& tensor : source.tensors)
    if (tensor.info.name == "output_norm")
      tensor.read = [read = tensor.read](int64_t first, int64_t last, std::byte* to) {
        read(first, last, to);
        const float bad = NAN;
        std::memcpy(to, &bad, sizeof bad);
      };
  write_quipu(folder / "bad.quipu", source, 1);
  write_file(folder / "in", "{\"prompt\": 1}\n" + requests(3));
  const Outcome outcome =
      chaski_run(batch(folder / "in", folder / "out", {"-m", folder / "bad.quipu", "--jobs", "1"}));
  check_one_line(outcome, 8, "line 2: ");
  CHECK(lines_of(read_file(folder / "out")).size() == 1);
}

TEST_CASE("batch: a prompt that memory does not hold is an error of its line, and no other's") {
  if (has_address_sanitizer()) return;
  const MemoryGroup group(28'000'000);
  if (!group.made()) return;
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 900; ++i) text += "There was a dog. ";
  std::string in;
  for (const std::string& prompt : {std::string("A dog"), text, std::string("A cat")})
    in += json{{"prompt", prompt}, {"max_tokens", 2}}.dump() + "\n";
  write_file(folder / "in", in);
  const Arguments all = batch(folder / "in", folder / "out",
                              {"--jobs", "1", "--kv", "f32", "--rope-scaling", "linear:64"});
  for (int run = 0; run < 2; ++run) {  // the second one answers nothing again
    CAPTURE(run);
    const Outcome outcome = group.run(all);
    CHECK_MESSAGE(outcome.status == 10, outcome.err);
    CHECK_MESSAGE(outcome.error_says("; 1 line with an error"), outcome.err);
    const std::vector<std::string> lines = lines_of(read_file(folder / "out"));
    REQUIRE(lines.size() == 3);
    for (size_t i = 0; i < lines.size(); ++i) {
      const json response = json::parse(lines[i])["response"];
      CHECK(response["status_code"] == (i == 1 ? 503 : 200));
      if (i == 1) CHECK(response["body"]["error"]["code"] == "out_of_memory");
    }
  }
  // Without its result, the line is answered where there is more memory.
  const std::vector<std::string> lines = lines_of(read_file(folder / "out"));
  write_file(folder / "out", lines[0] + "\n" + lines[2] + "\n");
  Arguments unordered = all;
  unordered.push_back("--unordered");
  const Outcome last = chaski_run(unordered);
  CHECK_MESSAGE(last.status == 0, last.err);
  const std::vector<std::string> now = lines_of(read_file(folder / "out"));
  REQUIRE(now.size() == 3);
  CHECK(now[0] == lines[0]);
  CHECK(json::parse(now[2])["line"] == 2);
}

TEST_CASE("batch: when the disk is full, OUT ends with a whole line and is continued later") {
  const TempFolder folder;
  write_file(folder / "in", requests(20));
  Arguments all = {"-c", "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"", chaski_binary()};
  std::ranges::copy(batch(folder / "in", folder / "out", {"--jobs", "4", "--unordered"}),
                    std::back_inserter(all));
  const Outcome full = Program(all, "", "", "/bin/bash").wait();
  check_one_line(full, 5, "cannot be written: File too large");
  const std::string part = read_file(folder / "out");
  CHECK(part.size() > 1024);
  CHECK(part.ends_with("}\n"));
  CHECK(chaski_run(batch(folder / "in", folder / "out", {"--unordered"})).status == 0);
  const std::string rest = read_file(folder / "out");
  CHECK(rest.starts_with(part));
  CHECK(lines_of(rest).size() == 20);
}
