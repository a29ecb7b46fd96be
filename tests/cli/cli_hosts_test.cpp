// Several processes that compute together, started by mpirun. SKIPPED where it is not there.
#include <nlohmann/json.hpp>

#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

const char* const kMpirun = "/usr/bin/mpirun";

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
  if (!have(kMpirun)) return;
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

TEST_CASE("cli/hosts: errors end all processes") {
  if (!have(kMpirun)) return;
  const Outcome outcome = on_ranks(2, {"run", "-m", "missing.quipu", "-p", "a"});
  CHECK(outcome.status == int(Exit::io));
  CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
  CHECK(on_ranks(2, {"--version"}).status == 0);
}

TEST_CASE("cli/hosts: a process that stops is named within 10 seconds") {
  if (!have(kMpirun)) return;
  const TempFolder folder;
  // Rank 1 stops itself in the middle of the run.
  const std::string script =
      "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then (sleep 1.5; kill -STOP $$) & fi; exec " +
      chaski_binary() + " run -m " + kStory + " -t 1 -n 400 --ignore-eos -p a >/dev/null";
  std::ofstream(folder / "rank.sh") << script;
  const auto start = std::chrono::steady_clock::now();
  Program program({"--allow-run-as-root", "--oversubscribe", "--quiet", "-n", "2", "/bin/sh",
                   folder / "rank.sh"},
                  "", "", kMpirun);
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
