// chaski bench through the real binary: the cases of a run, their bytes and steps, and that all
// output formats agree. No speeds are checked, because machines differ.
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/kit/program.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

// The case of this kind with these tokens, depth, and format of keys and values.
json bench_case(const json& report, const std::string& kind, int tokens, int depth = 0,
                const std::string& kv = "f16") {
  for (const json& c : report["cases"])
    if (c["case"] == kind && c["tokens"] == tokens && c["depth"] == depth && c["kv"] == kv)
      return c;
  FAIL("no ", kind, " of ", tokens, " at depth ", depth, " with ", kv);
  return {};
}

}  // namespace

TEST_CASE("cli/bench: lists of prompts, depths, widths and key formats are every case in one run") {
  const Outcome outcome =
      chaski_run({"bench", "-p", "1,20", "-n", "4", "--depth", "0,16", "--kv", "f16,q8", "--widths",
                  "1,3", "-r", "1", "--profile", "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json report = json::parse(outcome.out);
  REQUIRE(report["cases"].size() == 2 * (2 + 2 * (1 + 2)));
  for (const char* kv : {"f16", "q8"})
    for (const int depth : {0, 16})
      for (const json& c : {bench_case(report, "decode", 4, depth, kv),
                            bench_case(report, "width", 3, depth, kv)}) {
        CHECK(c["seconds"].get<double>() > 0);
        CHECK(c["gigabytes_per_second"].get<double>() > 0);
        CHECK(c["share_of_limit"].get<double>() > 0);
      }
  // Three tokens read the weights once and multiply three times as often. They also read the keys
  // of 16 more positions.
  const json one = bench_case(report, "width", 1), three = bench_case(report, "width", 3),
             deep = bench_case(report, "width", 1, 16);
  CHECK(three["operations"].get<double>() > 2.9 * one["operations"].get<double>());
  CHECK(three["bytes"].get<double>() < 1.1 * one["bytes"].get<double>());
  CHECK(deep["bytes"].get<double>() > one["bytes"].get<double>());
  for (const char* limit :
       {"read_gigabytes_per_second", "int8_gigaops_per_second", "f32_gigaops_per_second"})
    CHECK(one[limit].get<double>() > 0);
  // Memory is measured between the repetitions of each case. Arithmetic is measured once.
  std::set<double> reads, multiplies;
  for (const json& c : report["cases"]) {
    reads.insert(c["read_gigabytes_per_second"].get<double>());
    multiplies.insert(c["f32_gigaops_per_second"].get<double>());
  }
  CHECK(reads.size() > 1);
  CHECK(multiplies.size() == 1);
}

TEST_CASE(
    "cli/bench --profile: the ops of a case account for its bytes, and a pass has its steps") {
  const Outcome outcome =
      chaski_run({"bench", "-p", "300", "-n", "4", "-r", "1", "--profile", "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json report = json::parse(outcome.out), decode = bench_case(report, "decode", 4),
             prompt = bench_case(report, "prompt", 300);
  double weights = 0, all = 0;
  for (const json& op : decode["ops"]) {
    all += op["bytes"].get<double>();
    CHECK(op["weight"].is_string());
    if (op["op"] == "matmul" || op["op"] == "gated_matmul") weights += op["bytes"].get<double>();
  }
  CHECK(weights == report["weight_bytes"]);
  CHECK(all == doctest::Approx(decode["bytes"].get<double>()).epsilon(1e-9));
  CHECK(decode["passes"] == 1);
  CHECK(decode["steps"] == 8 * 6 + 5);  // plan_test.cpp
  CHECK(prompt["passes"] == 2);         // of 256 and 44 tokens
  CHECK(prompt["steps"] == 2 * decode["steps"].get<double>());
}

TEST_CASE("cli/bench --csv: a header and a row for each case, with the fields of --json") {
  const TempFolder folder;
  const std::string named = folder / "a, \"b\".quipu";
  std::filesystem::copy_file(kStory, named);
  const Arguments bench = {"bench", "-m",       named, "-p", "1,8", "-n",
                           "4",     "--widths", "2",   "-r", "2"};
  const auto with = [&](const char* flag) {
    Arguments all = bench;
    all.push_back(flag);
    return chaski_run(all);
  };
  const std::vector<std::string> lines = lines_of(with("--csv").out);
  REQUIRE(lines.size() == 1 + 4);
  CHECK(lines[0].starts_with("model,format,isa,threads,load,kv,case,tokens,depth,seconds,"));
  std::string quoted = named;
  for (size_t at = 0; (at = quoted.find('"', at)) != std::string::npos; at += 2)
    quoted.insert(at, 1, '"');
  for (size_t i = 1; i < lines.size(); ++i) {
    CHECK_MESSAGE(lines[i].starts_with("\"" + quoted + "\",q8,"), lines[i]);
    // The quoted name contains one more comma.
    CHECK(std::count(lines[i].begin(), lines[i].end(), ',') ==
          std::count(lines[0].begin(), lines[0].end(), ',') + 1);
  }
  CHECK(lines[4].find(",f16,width,2,0,") != std::string::npos);
  const auto object = nlohmann::ordered_json::parse(with("--json").out);
  std::string names;
  for (const auto& [name, value] : object["cases"][0].items())
    names += (names.empty() ? "" : ",") + name;
  CHECK(names == lines[0]);
  for (const auto& c : object["cases"]) {
    const auto seconds = c["seconds"].get<double>();
    CHECK(c["seconds_least"].get<double>() <= seconds);
    CHECK(seconds <= c["seconds_most"].get<double>());
  }
}

TEST_CASE("cli/scripts/plot_bench.py draws what bench --csv prints") {
  if (std::system("python3 -c '' 2>/dev/null") != 0)
    return (void)std::fprintf(stderr, "SKIPPED: python3 is not there\n");
  const TempFolder folder;
  std::ofstream(folder / "a.csv")
      << chaski_run({"bench", "-p", "8", "-n", "4", "--widths", "2", "-r", "1", "--csv"}).out;
  CHECK(std::system(("python3 scripts/plot/plot_bench.py " + (folder / "a.csv") + " -o " +
                     (folder / "a.svg"))
                        .c_str()) == 0);
  const std::string svg = read_file(folder / "a.svg");
  CHECK(svg.starts_with("<svg "));
  for (const char* text :
       {">operations per byte read<", ">Gop/s<", ">memory, ", ">decode<", ">q8<"})
    CHECK_MESSAGE(svg.find(text) != std::string::npos, text);
}

TEST_CASE("cli/bench --sgemm: OpenBLAS and the op, on weights of four formats") {
  const Arguments bench = {"bench", "-p", "20", "-n", "0", "-r", "1", "--sgemm", "--json"};
  const Outcome outcome = chaski_run(bench);
  if (outcome.status == 5 && outcome.error_says("OpenBLAS"))
    return (void)std::fprintf(stderr, "SKIPPED: OpenBLAS is not there\n");
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json report = json::parse(outcome.out);
  CHECK(report["sgemm_library"].get<std::string>().find("OpenBLAS") == 0);
  std::vector<std::string> matmuls;
  for (const json& c : report["cases"]) {
    const auto kind = c["case"].get<std::string>();
    CHECK(c["gigaops_per_second"].get<double>() > 0);
    if (kind == "matmul" || kind == "sgemm")
      matmuls.push_back(kind + " " + c["format"].get<std::string>());
    if (kind == "sgemm") CHECK(c["operations"] == 2.0 * 20 * 192 * 512);
  }
  CHECK(matmuls == std::vector<std::string>{"sgemm f32", "matmul f32", "matmul f16", "matmul q8",
                                            "matmul q4"});

  const TempFolder folder;
  std::ofstream(folder / "libopenblas.so.0") << "no library\n";
  setenv("LD_LIBRARY_PATH", folder.path.c_str(), 1);
  const Outcome without = chaski_run(bench);
  unsetenv("LD_LIBRARY_PATH");
  check_one_line(without, 5, "OpenBLAS");
}

TEST_CASE("cli/bench: cases that do not fit the context are refused before the first is measured") {
  check_one_line(chaski_run({"bench", "--device", "cpu", "-p", "8,600"}), 7, "context of 512");
  check_one_line(chaski_run({"bench", "--device", "cpu", "-p", "0", "--depth", "500", "-n", "20"}),
                 7, "a decode case of 20 tokens at depth 500");
}

TEST_CASE("cli/--load copy runs the same weights") {
  const Outcome mapped = chaski_run({"run", "-n", "30", "--seed", "7"});
  const Outcome copied = chaski_run({"run", "-n", "30", "--seed", "7", "--load", "copy"});
  CHECK_MESSAGE(copied.status == 0, copied.err);
  CHECK(copied.out == mapped.out);
  const Outcome bench =
      chaski_run({"bench", "-p", "0", "-n", "4", "-r", "1", "--load", "copy", "--json"});
  CHECK(bench_case(json::parse(bench.out), "decode", 4)["load"] == "copy");
}
