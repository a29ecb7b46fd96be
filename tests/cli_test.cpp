// The command line, by the real binary on real files: exit statuses, what stands on which stream, and what stays untouched.
#include <sys/mount.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/program.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

const std::string kStories = data("models/stories260K.bin");

void check_one_line(const Outcome& outcome, int status, const std::string& says) {
  CHECK_MESSAGE(outcome.status == status, outcome.err);
  CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
  CHECK_MESSAGE(outcome.error_says(says), outcome.err);
  CHECK(outcome.out.empty());
}

Arguments run_stories(const Arguments& more) {
  Arguments all = {"run", "-m", kStories, "-p", "Once upon a time"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return end == std::string::npos ? "" : text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

std::string joined(const Arguments& arguments) {
  std::string line;
  for (const std::string& argument : arguments) line += argument + " ";
  return line;
}

}  // namespace

TEST_CASE("cli/help lists every subcommand and each has its own") {
  const Outcome help = chaski_run({"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const char* name : {"run", "chat", "quantize", "convert", "inspect", "tokenize", "bench"}) {
    CHECK_MESSAGE(help.out.find(std::string("\n  ") + name + " ") != std::string::npos, name);
    const Outcome own = chaski_run({name, "--help"});
    CHECK(own.status == 0);
    CHECK_MESSAGE(own.out.find("Usage: chaski " + std::string(name)) != std::string::npos, own.out);
  }
  CHECK(chaski_run({"--version"}).out.starts_with("chaski "));
}

TEST_CASE("cli/usage errors are one line and status 2") {
  const std::vector<std::pair<Arguments, std::string>> wrong = {
      {{}, "expected one of run, chat"},
      {{"frobnicate"}, "frobnicate"},
      {{"--bogus"}, "--bogus"},
      {{"run", "--bogus"}, "--bogus"},
      {{"run", "-n", "many", "-p", "a"}, "many"},
      {{"run", "-n", "-2", "-p", "a"}, "-2"},
      {{"run", "-t", "0", "-p", "a"}, "--threads"},
      {{"run", "-p", "a", "-f", "b"}, "--file"},
      {{"run", "--temp", "-1", "-p", "a"}, "-1"},
      {{"run", "--kv", "q3", "-p", "a"}, "q3"},
      {{"run", "--draft-len", "3", "-p", "a"}, "--draft MODEL"},
      {{"run", "--stop", "", "-p", "a"}, "--stop"},
      {{"run", "--device", "abacus", "-p", "a"}, "abacus"},
      {{"run", "-m", "x"}, "-p TEXT"},
      {{"quantize", "x"}, "OUT"},
      {{"quantize", "x", "y", "--type", "q77"}, "q77"},
      {{"bench", "--shape", "enormous"}, "enormous"},
      {{"bench", "--shape", "llama-3.2-1b:q77"}, "q77"},
      {{"bench", "--shape", "llama-3.2-1b", "-m", "x"}, "--model"},
      {{"bench", "-p", "1,x"}, "--prompt: is 1,x"},
      {{"bench", "-p", "1,,8"}, "--prompt: is 1,,8"},
      {{"bench", "-p", ""}, "--prompt"},
      {{"bench", "--depth", "0,-1"}, "--depth: is 0,-1"},
      {{"bench", "--widths", "1,257"}, "--widths: is 1,257"},
      {{"bench", "--kv", "f16,q3"}, "q3"},
      {{"bench", "--csv", "--json"}, "--csv"},
      {{"bench", "--csv", "--profile"}, "--csv"},
      {{"run", "--kv", "f16,q8", "-p", "a"}, "f16,q8"},
      {{"run", "--load", "disk", "-p", "a"}, "disk"},
  };
  for (const auto& [arguments, says] : wrong) {
    CAPTURE(joined(arguments));
    check_one_line(chaski_run(arguments), 2, says);
  }
}

TEST_CASE("cli/files that are missing or no models") {
  const TempFolder folder;
  std::ofstream(folder / "letter.txt") << "Dear reader, this is no model.\n";
  std::ofstream(folder / "empty.gguf");
  const std::vector<Arguments> commands = {{"run", "-p", "a", "-m"}, {"inspect"}, {"tokenize", "-p", "a", "-m"}, {"chat", "-m"}};
  for (const Arguments& command : commands) {
    const auto with = [&](const std::string& file) {
      Arguments all = command;
      all.push_back(file);
      return chaski_run(all);
    };
    CAPTURE(joined(command));
    check_one_line(with(folder / "nothing"), 5, "nothing: ");
    check_one_line(with(folder / "letter.txt"), 3, "letter.txt: ");
    check_one_line(with(folder / "empty.gguf"), 3, "empty.gguf: ");
  }
  check_one_line(chaski_run({"quantize", folder / "letter.txt", folder / "out.quipu"}), 3, "letter.txt: ");
  check_one_line(chaski_run({"run", "-f", folder / "nothing"}), 5, "nothing: ");
}

TEST_CASE("cli/a device that is not there") { check_one_line(chaski_run({"run", "--device", "cuda:99", "-p", "a"}), 6, "cuda:99"); }

TEST_CASE("cli/the bundled model tells a story, on stdout only") {
  const Outcome story = chaski_run({"run", "-n", "40", "--seed", "7"});
  CHECK_MESSAGE(story.status == 0, story.err);
  CHECK(story.out.starts_with("Once upon a time"));
  CHECK(story.out.size() > 40);
  CHECK(story.out.find("tok/s") == std::string::npos);
  CHECK_MESSAGE(story.err.starts_with("prompt "), story.err);
  CHECK(story.err.ends_with("; seed 7\n"));
  CHECK(std::count(story.err.begin(), story.err.end(), '\n') == 1);
  const Outcome json_story = chaski_run({"run", "-n", "40", "--seed", "7", "--json"});
  CHECK(json::parse(json_story.out)["text"] == story.out);
}

TEST_CASE("cli/same seed, same bytes, whatever the threads; another seed, other bytes") {
  if (!have(kStories)) return;
  const std::string text = chaski_run(run_stories({"--seed", "5", "-n", "60"})).out;
  CHECK(!text.empty());
  for (const char* threads : {"1", "3"}) CHECK(chaski_run(run_stories({"--seed", "5", "-n", "60", "-t", threads})).out == text);
  CHECK(chaski_run(run_stories({"--seed", "6", "-n", "60"})).out != text);
  const Outcome draft = chaski_run(run_stories({"--seed", "5", "-n", "60", "--draft", kStories, "--draft-len", "3"}));
  CHECK(draft.out == text);
  CHECK_MESSAGE(draft.error_says("accepted "), draft.err);
  // A random seed is told, and gives the same text again.
  const Outcome free = chaski_run(run_stories({"-n", "60"}));
  const std::string seed = free.err.substr(free.err.rfind(' ') + 1, free.err.size() - free.err.rfind(' ') - 2);
  CHECK(chaski_run(run_stories({"--seed", seed, "-n", "60"})).out == free.out);
}

TEST_CASE("cli/prompts from -p, -f and standard input are the same") {
  if (!have(kStories)) return;
  const TempFolder folder;
  std::ofstream(folder / "prompt") << "Once upon a time";
  const std::string text = chaski_run(run_stories({"--temp", "0", "-n", "30"})).out;
  CHECK(chaski_run({"run", "-m", kStories, "-f", folder / "prompt", "--temp", "0", "-n", "30"}).out == text);
  CHECK(chaski_run({"run", "-m", kStories, "--temp", "0", "-n", "30"}, "Once upon a time").out == text);
  CHECK(chaski_run(run_stories({"-n", "0"})).out.empty());
  const std::string cut = chaski_run(run_stories({"--temp", "0", "-n", "30", "--stop", "Lily", "--stop", "zebra"})).out;
  CHECK(cut == text.substr(0, text.find("Lily")));
  CHECK(cut != text);
}

TEST_CASE("cli/run --json is one object with the text and the rates") {
  if (!have(kStories)) return;
  const Outcome outcome = chaski_run(run_stories({"--seed", "5", "-n", "30", "--json"}));
  const json object = json::parse(outcome.out);
  CHECK(object["text"] == chaski_run(run_stories({"--seed", "5", "-n", "30"})).out);
  CHECK(object["finish"] == "length");
  CHECK(object["answer_tokens"] == 30);
  CHECK(object["seed"] == 5);
  CHECK(object["prompt_tokens_per_second"].get<double>() > 0);
  CHECK(object["decode_tokens_per_second"].get<double>() > 0);
}

TEST_CASE("cli/a prompt longer than the context") {
  if (!have(kStories)) return;
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word ";
  const Outcome outcome = chaski_run({"run", "-m", kStories, "-n", "1"}, text);
  CHECK(outcome.status == 7);
  CHECK(outcome.out.empty());
  CHECK_MESSAGE(outcome.error_says("512"), outcome.err);
}

TEST_CASE("cli/stdout that cannot be written: full device 5, closed pipe 141") {
  if (!have(kStories)) return;
  Program full(run_stories({"-n", "20"}), "", "/dev/full");
  const Outcome outcome = full.wait();
  CHECK(outcome.status == 5);
  CHECK(last_line(outcome.err).starts_with("chaski: standard output: "));
  const std::string pipe = chaski_binary() + " run -m " + kStories +
                           " -p Once --ignore-end 2>/dev/null | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}";
  CHECK(WEXITSTATUS(std::system(("bash -c '" + pipe + "'").c_str())) == 141);
}

namespace {

// A run that takes seconds: the slowest kernels, one thread.
Outcome interrupted_by(int signal) {
  setenv("CHASKI_ISA", "scalar", 1);
  Program program({"run", "-m", data("models/stories3M-q80.bin"), "-p", "Once", "--ignore-end", "-t", "1"}, "");
  unsetenv("CHASKI_ISA");
  for (int i = 0; i < 1000 && program.out_so_far().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  program.signal(signal);
  return program.wait();
}

}  // namespace

TEST_CASE("cli/SIGINT and SIGTERM end a run with its timing line") {
  if (!have(data("models/stories3M-q80.bin"))) return;
  for (const auto& [signal, status] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    const Outcome outcome = interrupted_by(signal);
    CHECK(outcome.status == status);
    CHECK(!outcome.out.empty());
    CHECK_MESSAGE(last_line(outcome.err).starts_with("prompt "), outcome.err);
  }
}

TEST_CASE("cli/quantize prints sizes, formats and errors, and the result runs") {
  if (!have(kStories)) return;
  const TempFolder folder;
  const Outcome outcome = chaski_run({"quantize", kStories, folder / "out.quipu", "--type", "q8"});
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK(outcome.err.empty());
  CHECK(outcome.out.find("layer.0.attn_q              f32 -> q8") != std::string::npos);
  CHECK(outcome.out.find("172 columns") != std::string::npos);
  CHECK(outcome.out.find("weights 1.05 MB -> 0.33 MB") != std::string::npos);
  CHECK(chaski_run({"inspect", folder / "out.quipu", "--verify"}).status == 0);
  CHECK(!chaski_run({"run", "-m", folder / "out.quipu", "-p", "Once", "-n", "10"}).out.empty());

  const Outcome again = chaski_run({"quantize", folder / "out.quipu", folder / "q4.quipu", "--json"});
  CHECK_MESSAGE(again.error_says("loses a second time"), again.err);
  const json report = json::parse(again.out);
  CHECK(report["type"] == "q4");
  CHECK(report["tensors"][0]["from"] == "q8");
  CHECK(report["bytes_after"] < report["bytes_before"]);
}

TEST_CASE("cli/an output that is the input is refused before a byte is written") {
  if (!have(kStories)) return;
  const TempFolder folder;
  const std::string model = folder / "model.bin";
  std::filesystem::copy_file(kStories, model);
  std::filesystem::copy_file(data("models/tok512.bin"), folder / "tok512.bin");
  std::filesystem::permissions(model, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  std::filesystem::create_symlink("model.bin", folder / "symlink");
  std::filesystem::create_hard_link(model, folder / "hardlink");
  for (const char* command : {"quantize", "convert"})
    for (const char* out : {"model.bin", "symlink", "hardlink"}) {
      const Outcome outcome = chaski_run({command, model, folder / out});
      CHECK(outcome.status == 2);
      CHECK_MESSAGE(last_line(outcome.err).find("input") != std::string::npos, outcome.err);
      CHECK(read_file(model) == read_file(kStories));
    }
}

TEST_CASE("cli/a disk that is full: status 5, the old file is whole, nothing is left behind") {
  if (!have(kStories)) return;
  const TempFolder folder;
  const std::string disk = folder / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=128k") != 0) {
    std::fprintf(stderr, "SKIPPED: no right to mount a small tmpfs\n");
    return;
  }
  std::ofstream(disk + "/out.quipu") << "the old file";
  for (const Arguments& command : std::vector<Arguments>{{"quantize", "--type", "q8"}, {"convert"}}) {
    Arguments all = command;
    all.insert(all.end(), {kStories, disk + "/out.quipu"});
    const Outcome outcome = chaski_run(all);
    CHECK(outcome.status == 5);
    CHECK_MESSAGE(last_line(outcome.err).find("out.quipu") != std::string::npos, outcome.err);
    CHECK(read_file(disk + "/out.quipu") == "the old file");
    CHECK(std::distance(std::filesystem::directory_iterator(disk), {}) == 1);
  }
  ::umount(disk.c_str());
}

TEST_CASE("cli/convert to GGUF and back keeps every weight and the text") {
  if (!have(kStories)) return;
  const TempFolder folder;
  CHECK(chaski_run({"convert", kStories, folder / "a.quipu"}).status == 0);
  CHECK(chaski_run({"convert", folder / "a.quipu", folder / "b.gguf"}).status == 0);
  CHECK(chaski_run({"convert", folder / "b.gguf", folder / "c.quipu", "-t", "3"}).status == 0);
  const std::string text = chaski_run(run_stories({"--seed", "5", "-n", "60"})).out;
  for (const char* file : {"a.quipu", "b.gguf", "c.quipu"})
    CHECK(chaski_run({"run", "-m", folder / file, "-p", "Once upon a time", "--seed", "5", "-n", "60"}).out == text);
  CHECK(json::parse(chaski_run({"inspect", folder / "a.quipu", "--json"}).out)["tensors"] ==
        json::parse(chaski_run({"inspect", folder / "c.quipu", "--json"}).out)["tensors"]);
}

TEST_CASE("cli/inspect and its damaged file") {
  if (!have(kStories)) return;
  const TempFolder folder;
  CHECK(chaski_run({"convert", kStories, folder / "a.quipu"}).status == 0);
  const json object = json::parse(chaski_run({"inspect", folder / "a.quipu", "--json", "--verify"}).out);
  CHECK(object["verified"] == true);
  CHECK(object["metadata"]["model.block_count"] == 5);
  CHECK(object["metadata"]["tokenizer.add_bos"] == true);
  CHECK(object["bits_per_weight"].get<double>() > 32);
  uint64_t bytes = 0;
  for (const json& tensor : object["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
  CHECK(object["weight_bytes"] == bytes);
  const std::string table = chaski_run({"inspect", folder / "a.quipu"}).out;
  CHECK(table.find("model.block_count                   5\n") != std::string::npos);
  CHECK(table.find("(512 items)") != std::string::npos);

  std::string damaged = read_file(folder / "a.quipu");
  damaged[damaged.size() - 100] ^= 1;
  std::ofstream(folder / "b.quipu", std::ios::binary) << damaged;
  CHECK(chaski_run({"inspect", folder / "b.quipu"}).status == 0);
  check_one_line(chaski_run({"inspect", folder / "b.quipu", "--verify"}), 3, "b.quipu: tensor ");
  check_one_line(chaski_run({"inspect", kStories, "--verify"}), 2, "expected a .quipu file");
}

TEST_CASE("cli/tokenize and back") {
  if (!have(kStories)) return;
  const std::string text = "Once upon a t\xc3\xafme, <s> there\nwas \xf0\x9f\xa6\x99.";
  const Outcome ids = chaski_run({"tokenize", "-m", kStories, "--ids"}, text);
  CHECK_MESSAGE(ids.status == 0, ids.err);
  Arguments back = {"tokenize", "-m", kStories, "--decode"};
  std::istringstream words(ids.out);
  for (std::string id; words >> id;) back.push_back(id);
  CHECK(chaski_run(back).out == text);
  const json object = json::parse(chaski_run({"tokenize", "-m", kStories, "--json", "-p", text}).out);
  CHECK(object["count"] == back.size() - 4);
  CHECK(object["tokens"][0]["control"] == true);
  check_one_line(chaski_run({"tokenize", "-m", kStories, "--decode", "512"}), 2, "512");
}

namespace {

// The case of this kind with so many tokens, behind so many, with such keys and values.
json bench_case(const json& report, const std::string& kind, int tokens, int depth = 0, const std::string& kv = "f16") {
  for (const json& c : report["cases"])
    if (c["case"] == kind && c["tokens"] == tokens && c["depth"] == depth && c["kv"] == kv) return c;
  FAIL("no ", kind, " of ", tokens, " behind ", depth, " with ", kv);
  return {};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("cli/bench: lists of prompts, depths, widths and key formats are every case in one run") {
  const Outcome outcome = chaski_run({"bench", "-p", "1,20", "-n", "4", "--depth", "0,16", "--kv", "f16,q8", "--widths", "1,3", "-r", "1",
                                      "--profile", "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json report = json::parse(outcome.out);
  REQUIRE(report["cases"].size() == 2 * (2 + 2 * (1 + 2)));
  for (const char* kv : {"f16", "q8"})
    for (const int depth : {0, 16})
      for (const json& c : {bench_case(report, "decode", 4, depth, kv), bench_case(report, "width", 3, depth, kv)}) {
        CHECK(c["seconds"] > 0);
        CHECK(c["gigabytes_per_second"] > 0);
        CHECK(c["share_of_limit"] > 0);
      }
  // Three tokens read the weights once and multiply three times as often; the keys of 16 more positions are read too.
  const json one = bench_case(report, "width", 1), three = bench_case(report, "width", 3), deep = bench_case(report, "width", 1, 16);
  CHECK(three["operations"] > 2.9 * one["operations"].get<double>());
  CHECK(three["bytes"] < 1.1 * one["bytes"].get<double>());
  CHECK(deep["bytes"] > one["bytes"]);
  for (const char* limit : {"read_gigabytes_per_second", "int8_gigaops_per_second", "f32_gigaops_per_second"}) CHECK(one[limit] > 0);
}

TEST_CASE("cli/bench --profile: the ops of a case account for its bytes, and a pass has its steps") {
  const Outcome outcome = chaski_run({"bench", "-p", "300", "-n", "4", "-r", "1", "--profile", "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json report = json::parse(outcome.out), decode = bench_case(report, "decode", 4), prompt = bench_case(report, "prompt", 300);
  double weights = 0, all = 0;
  for (const json& op : decode["ops"]) {
    all += op["bytes"].get<double>();
    if (op["op"] == "matmul" || op["op"] == "gated_matmul") weights += op["bytes"].get<double>();
  }
  CHECK(weights == report["weight_bytes"]);
  CHECK(all == doctest::Approx(decode["bytes"].get<double>()).epsilon(1e-9));
  CHECK(decode["passes"] == 1);
  CHECK(decode["steps"] == 8 * 6 + 5);  // plan_test.cpp
  CHECK(prompt["passes"] == 2);         // of 256 and 44 tokens
  CHECK(prompt["barriers"] == 2 * decode["barriers"].get<double>());
}

TEST_CASE("cli/bench --csv: a header and a row for each case, with the fields of --json") {
  if (!have(kStories)) return;
  const TempFolder folder;
  const std::string named = folder / "a, \"b\".bin";
  std::filesystem::copy_file(kStories, named);
  std::filesystem::copy_file(data("models/tok512.bin"), folder / "tok512.bin");
  const Arguments bench = {"bench", "-m", named, "-p", "1,8", "-n", "4", "--widths", "2", "-r", "2"};
  const auto with = [&](const char* flag) {
    Arguments all = bench;
    all.push_back(flag);
    return chaski_run(all);
  };
  const std::vector<std::string> lines = lines_of(with("--csv").out);
  REQUIRE(lines.size() == 1 + 4);
  CHECK(lines[0].starts_with("model,format,isa,threads,load,kv,case,tokens,depth,seconds,"));
  std::string quoted = named;
  for (size_t at = 0; (at = quoted.find('"', at)) != std::string::npos; at += 2) quoted.insert(at, 1, '"');
  for (size_t i = 1; i < lines.size(); ++i) {
    CHECK_MESSAGE(lines[i].starts_with("\"" + quoted + "\",f32,"), lines[i]);
    // The quoted name holds one comma more.
    CHECK(std::count(lines[i].begin(), lines[i].end(), ',') == std::count(lines[0].begin(), lines[0].end(), ',') + 1);
  }
  CHECK(lines[4].find(",f16,width,2,0,") != std::string::npos);
  const auto object = nlohmann::ordered_json::parse(with("--json").out);
  std::string names;
  for (const auto& [name, value] : object["cases"][0].items()) names += (names.empty() ? "" : ",") + name;
  CHECK(names == lines[0]);
  for (const auto& c : object["cases"]) {
    CHECK(c["seconds_least"] <= c["seconds"]);
    CHECK(c["seconds"] <= c["seconds_most"]);
  }
}

TEST_CASE("cli/scripts/plot_bench.py draws what bench --csv prints") {
  if (std::system("python3 -c '' 2>/dev/null") != 0) return (void)std::fprintf(stderr, "SKIPPED: python3 is not there\n");
  const TempFolder folder;
  std::ofstream(folder / "a.csv") << chaski_run({"bench", "-p", "8", "-n", "4", "--widths", "2", "-r", "1", "--csv"}).out;
  CHECK(std::system(("python3 scripts/plot_bench.py " + (folder / "a.csv") + " -o " + (folder / "a.svg")).c_str()) == 0);
  const std::string svg = read_file(folder / "a.svg");
  CHECK(svg.starts_with("<svg "));
  for (const char* text : {">operations per byte read<", ">Gop/s<", ">memory, ", ">decode<", ">q8<"}) CHECK_MESSAGE(svg.find(text) != std::string::npos, text);
}

TEST_CASE("cli/bench --sgemm: OpenBLAS beside the op, on weights of four formats") {
  const Arguments bench = {"bench", "-p", "20", "-n", "0", "-r", "1", "--sgemm", "--json"};
  const Outcome outcome = chaski_run(bench);
  if (outcome.status == 5 && outcome.error_says("OpenBLAS")) return (void)std::fprintf(stderr, "SKIPPED: OpenBLAS is not there\n");
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json report = json::parse(outcome.out);
  CHECK(report["sgemm_library"].get<std::string>().find("OpenBLAS") == 0);
  std::vector<std::string> matmuls;
  for (const json& c : report["cases"]) {
    CHECK(c["gigaops_per_second"] > 0);
    if (c["case"] == "matmul" || c["case"] == "sgemm") matmuls.push_back(c["case"].get<std::string>() + " " + c["format"].get<std::string>());
    if (c["case"] == "sgemm") CHECK(c["operations"] == 2.0 * 20 * 192 * 512);
  }
  CHECK(matmuls == std::vector<std::string>{"sgemm f32", "matmul f32", "matmul f16", "matmul q8", "matmul q4"});

  const TempFolder folder;
  std::ofstream(folder / "libopenblas.so.0") << "no library\n";
  setenv("LD_LIBRARY_PATH", folder.path.c_str(), 1);
  const Outcome without = chaski_run(bench);
  unsetenv("LD_LIBRARY_PATH");
  check_one_line(without, 5, "OpenBLAS");
}

TEST_CASE("cli/bench: cases that do not fit the context are refused before the first is measured") {
  check_one_line(chaski_run({"bench", "-p", "8,600"}), 7, "context of 512");
  check_one_line(chaski_run({"bench", "-p", "0", "--depth", "500", "-n", "20"}), 7, "20 tokens after 500");
}

TEST_CASE("cli/--load copy runs the same weights") {
  const Outcome mapped = chaski_run({"run", "-n", "30", "--seed", "7"}), copied = chaski_run({"run", "-n", "30", "--seed", "7", "--load", "copy"});
  CHECK_MESSAGE(copied.status == 0, copied.err);
  CHECK(copied.out == mapped.out);
  const Outcome bench = chaski_run({"bench", "-p", "0", "-n", "4", "-r", "1", "--load", "copy", "--json"});
  CHECK(bench_case(json::parse(bench.out), "decode", 4)["load"] == "copy");
}

TEST_CASE("cli/chat over a pipe: an answer per question, commands, the end") {
  if (!have(kStories)) return;
  const Arguments chat = {"chat", "-m", kStories, "-n", "12", "--seed", "3"};
  const Outcome two = chaski_run(chat, "Tell me a story.\n\n/help\n/nonsense\nAnd then?\n/quit\nnever read\n");
  CHECK_MESSAGE(two.status == 0, two.err);
  CHECK(two.out.find("> ") == std::string::npos);
  CHECK(two.error_says("/clear  forget"));
  CHECK(two.error_says("/nonsense is no command"));
  // The first answer is the same alone; after /clear the second question is a first one.
  const Outcome one = chaski_run(chat, "Tell me a story.\n");
  CHECK(!one.out.empty());
  CHECK(two.out.starts_with(one.out));
  CHECK(two.out.size() > one.out.size());
  const Outcome cleared = chaski_run(chat, "Tell me a story.\n/clear\nTell me a story.\n");
  CHECK(cleared.out == one.out + one.out);
}

TEST_CASE("cli/chat says when a conversation does not fit") {
  if (!have(kStories)) return;
  std::string question;
  for (int i = 0; i < 600; ++i) question += "word ";
  const Outcome outcome = chaski_run({"chat", "-m", kStories, "-n", "4"}, question + "\n");
  CHECK(outcome.status == 7);
  CHECK_MESSAGE(last_line(outcome.err).find("512") != std::string::npos, outcome.err);
}
