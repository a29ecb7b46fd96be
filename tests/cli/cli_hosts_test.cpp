// Several processes that compute together, started by mpirun. SKIPPED where it is not there, and in
// a build without MPI.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/passes/mpi_link.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

const char* const kMpirun = "/usr/bin/mpirun";

bool can_run() {
  if (!has_mpi()) std::fprintf(stderr, "SKIPPED: built without MPI\n");
  return has_mpi() && have(kMpirun);
}

Arguments with_mpirun(int ranks, const Arguments& arguments) {
  Arguments all{"--allow-run-as-root", "--oversubscribe", "--quiet", "--bind-to", "none", "-n",
                std::to_string(ranks), chaski_binary()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

Outcome on_ranks(int ranks, const Arguments& arguments, const std::string& input = "") {
  return Program(with_mpirun(ranks, arguments), input, "", kMpirun).wait();
}

}  // namespace

TEST_CASE("cli/hosts: processes of mpirun print what one process prints") {
  if (!can_run()) return;
  // Its weights are small, and would be computed by every process.
  const OwnVariable divided("CHASKI_LEAST_BYTES", "0");
  const Arguments run = run_story({"--seed", "7", "-n", "40", "-t", "1"});
  const Outcome alone = chaski_run(run);
  REQUIRE(alone.status == 0);
  for (const int ranks : {2, 3}) {
    const Outcome together = on_ranks(ranks, run);
    CHECK_MESSAGE(together.status == 0, together.err);
    CHECK(together.out == alone.out);
  }
  const Arguments chat{"chat", "-m", kStory, "--seed", "3", "-n", "20", "-t", "1", "-p", "Lily"};
  CHECK(on_ranks(2, chat).out == chaski_run(chat).out);
  const Arguments eval{"eval", "-m", kStory, "-t", "1", "-c", "64", "--json"};
  const std::string text(600, 'a');
  const auto perplexity = [](const Outcome& o) { return json::parse(o.out).at("perplexity"); };
  CHECK(perplexity(on_ranks(2, eval, text)) == perplexity(chaski_run(eval, text)));
}

TEST_CASE("cli/hosts: eval with a base and a noise floor prints what one process prints") {
  if (!can_run()) return;
  const OwnVariable divided("CHASKI_LEAST_BYTES", "0");
  const Arguments eval{"eval", "-m",   kStory, "-t",        "1",   "-c",      "64",    "--kv",
                       "q8",   "--kl", kStory, "--base-kv", "f16", "--noise", "--json"};
  const auto result = [&](const Outcome& o) {
    REQUIRE_MESSAGE(o.status == 0, o.err);
    json all = json::parse(o.out);
    for (json* of : {&all, &all["base"]}) of->erase("device");
    all.erase("seconds");
    return all;
  };
  const std::string text(600, 'a');
  const json together = result(on_ranks(2, eval, text));
  CHECK(together.at("floor").get<double>() > 0);
  CHECK(together == result(chaski_run(eval, text)));
}

TEST_CASE("cli/hosts: --hosts starts mpirun, and every word reaches the first machine") {
  if (!can_run()) return;
  const OwnVariable divided("CHASKI_LEAST_BYTES", "0");
  for (const std::string prompt : {"Once upon a time", ":", "a\nb \"c\" $d ; e"}) {
    CAPTURE(prompt);
    const Arguments alone{"run", "-m", kStory, "--seed", "7", "-n", "20", "-t", "1", "-p", prompt};
    Arguments together = alone;
    together.insert(together.begin() + 1, {"--hosts", "localhost,localhost"});
    const Outcome outcome = chaski_run(together);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK(outcome.out == chaski_run(alone).out);
  }
}

TEST_CASE("cli/hosts: wrong names, and commands that do not take them") {
  check_one_line(chaski_run({"quantize", kStory, "/tmp/never", "q8", "--hosts", "a,b"}),
                 int(Exit::usage), "chaski quantize has no flag --hosts");
  for (const std::string hosts : {"a,", "", "-oProxyCommand=x", "a b", "a,:"})
    check_one_line(chaski_run(run_story({"--hosts", hosts})), int(Exit::usage),
                   "--hosts is \"" + hosts + "\", expected names of machines, such as a,b");
  // Before mpirun starts, so also where it is not installed.
  for (const auto& [speeds, error] : std::vector<std::pair<std::string, std::string>>{
           {"1,2,3", "--rank-speeds has 3 numbers, expected 2, one for each machine"},
           {"1", "--rank-speeds has 1 numbers, expected 2, one for each machine"},
           {"1,x", "--rank-speeds is \"1,x\", expected a positive number for each machine"}})
    check_one_line(chaski_run(run_story({"--hosts", "a,b", "--rank-speeds", speeds})),
                   int(Exit::usage), error);
  const Outcome help = chaski_run({"run", "--hosts", "a,b", "--help"});
  CHECK(help.status == 0);
  CHECK(contains(help.out, "--hosts"));
}

TEST_CASE("cli/hosts: flags for one process are refused") {
  if (!can_run()) return;
  for (const Arguments& flags :
       {Arguments{"--gpu-layers", "2"}, {"--cpu-experts"}, {"--expert-memory", "1G"}}) {
    const Outcome outcome = on_ranks(2, run_story(flags));
    CHECK(outcome.status == int(Exit::usage));
    CHECK_MESSAGE(outcome.error_says(flags[0]), outcome.err);
  }
}

TEST_CASE("cli/hosts: errors end all processes") {
  if (!can_run()) return;
  const Outcome outcome = on_ranks(2, {"run", "-m", "missing.quipu", "-p", "a"});
  CHECK(outcome.status == int(Exit::io));
  CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
  CHECK(on_ranks(2, {"--version"}).status == 0);
}

TEST_CASE("cli/hosts: a process that stops is named within 10 seconds") {
  if (!can_run()) return;
  const TempFolder folder;
  const std::string script = "echo $$ > " + (folder / "pid") + "$OMPI_COMM_WORLD_RANK; exec " +
                             chaski_binary() + " run -m " + kStory +
                             " -t 1 -n 1000000 --ignore-eos --context-policy shift -p a";
  std::ofstream(folder / "rank.sh") << script;
  Program program({"--allow-run-as-root", "--oversubscribe", "--quiet", "-n", "2", "/bin/sh",
                   folder / "rank.sh"},
                  "", "", kMpirun);
  for (int i = 0; i < 3000 && program.out_so_far().size() < 100; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(program.out_so_far().size() >= 100);
  const auto start = std::chrono::steady_clock::now();
  ::kill(std::stoi(read_file(folder / "pid1")), SIGSTOP);
  const Outcome outcome = program.wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(outcome.status != 0);
  CHECK_MESSAGE(outcome.error_says("(rank 1) has not answered for 7 s"), outcome.err);
  CHECK(took.count() < 12);
}

TEST_CASE("cli/hosts: plan predicts several machines") {
  const Outcome outcome = chaski_run(
      {"plan", kStory, "--hosts", "2", "--link", "10G,20us", "--json", "--device", "cpu"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json plan = json::parse(outcome.out), hosts = plan.at("hosts");
  CHECK(hosts.size() >= 2);
  CHECK(hosts[0]["decode_tokens_per_second"] == plan["decode_tokens_per_second"]);
  // The second machine has two of the three key heads.
  CHECK(3 * hosts[1]["state_bytes"].get<int64_t>() == 2 * hosts[0]["state_bytes"].get<int64_t>());
  check_one_line(chaski_run({"plan", kStory, "--link", "fast"}), int(Exit::usage),
                 "--link is fast, expected bits a second and a latency, such as 1G,80us");
}
