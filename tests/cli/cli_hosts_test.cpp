// Several processes that compute together, started by mpirun. SKIPPED where it is not there, and in
// a build without MPI.
#include <cctype>
#include <chrono>
#include <nlohmann/json.hpp>

#include "engine/passes/mpi_link.h"
#include "engine/passes/mpirun_text.h"
#include "tests/kit/client.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

const char* const kMpirun = "/usr/bin/mpirun";

bool can_run() {
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // OpenMPI does not free all of its memory
  if (!has_mpi()) std::fprintf(stderr, "SKIPPED: built without MPI\n");
  return has_mpi() && have(kMpirun);
}

Arguments with_mpirun(int ranks, const Arguments& arguments) {
  Arguments all{"--allow-run-as-root", "--oversubscribe", "--quiet", "--bind-to", "none", "-n",
                std::to_string(ranks), chaski_binary()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

Arguments on_two(Arguments arguments) {
  arguments.insert(arguments.begin() + 1, {"--hosts", "localhost,localhost"});
  return arguments;
}

// The process of a rank of a run that has `variable` in its environment; 0 if there is none.
pid_t process_of(const std::string& variable, int rank) {
  const std::string of_rank = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::isdigit(static_cast<unsigned char>(name[0]))) continue;
    const std::string variables = read_file(entry.path() / "environ") + '\0';
    if (contains(variables, variable + '\0') && contains(variables, of_rank + '\0'))
      return pid_t(std::stoi(name));
  }
  return 0;
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

TEST_CASE("cli/hosts: batch on two ranks writes what one process writes") {
  if (!can_run()) return;
  const OwnVariable divided("CHASKI_LEAST_BYTES", "0");
  const TempFolder folder;
  std::string requests;
  for (int i = 0; i < 6; ++i)
    requests +=
        json{{"prompt", i % 2 ? "The cat" : "Lily"}, {"max_tokens", 9 + i}, {"seed", i}}.dump() +
        "\n";
  write_file(folder / "in", requests);
  const auto texts = [&](const char* out, bool together) {
    const Arguments all{"batch", "-m", kStory, folder / "in", folder / out, "-t", "1"};
    const Outcome outcome = chaski_run(together ? on_two(all) : all);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    std::vector<std::string> found;
    for (const std::string& line : lines_of(read_file(folder / out)))
      found.push_back(json::parse(line).at("response").at("body").at("choices").at(0).at("text"));
    return found;
  };
  const std::vector<std::string> alone = texts("alone", false);
  CHECK(alone.size() == 6);
  CHECK(texts("together", true) == alone);
}

TEST_CASE("cli/hosts: bench on two ranks shows the time of gathers and the machine's limits") {
  if (!can_run()) return;
  const OwnVariable divided("CHASKI_LEAST_BYTES", "0");
  const Arguments bench{"bench", "-m", kStory, "-t", "1",         "-p",    "16",
                        "-n",    "4",  "-r",   "1",  "--profile", "--json"};
  const Outcome outcome = chaski_run(on_two(bench));
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json result = json::parse(outcome.out);
  CHECK(result.at("limits_before").at("read_gigabytes_per_second") > 0);
  for (const json& c : result.at("cases")) {
    const auto gather = std::ranges::find(
        c.at("ops"), "gather", [](const json& op) { return op.at("op").get<std::string>(); });
    REQUIRE(gather != c.at("ops").end());
    CHECK(gather->at("seconds") > 0);
  }
}

TEST_CASE("cli/hosts: a server answers as alone, also after a client that leaves") {
  if (!can_run()) return;
  const OwnVariable divided("CHASKI_LEAST_BYTES", "0");
  const Serving together({"--no-log", "--hosts", "localhost,localhost"});
  const auto text = [](const Serving& server, int seed) {
    return server
        .post("/v1/completions",
              {{"prompt", "Once upon a time"}, {"max_tokens", 30}, {"seed", seed}})
        .json()
        .at("choices")
        .at(0)
        .at("text");
  };
  CHECK(text(together, 1) == text(story_server(), 1));
  {
    Client client(together.port());
    client.put(request_text(
        "POST", "/v1/completions",
        json{{"prompt", "The"}, {"max_tokens", 100000}, {"stream", true}, {"ignore_eos", true}}
            .dump()));
    CHECK(client.read_until("data: "));
  }
  CHECK(text(together, 2) == text(story_server(), 2));
}

TEST_CASE("cli/hosts: Ctrl-C ends all ranks, and no error is printed") {
  if (!can_run()) return;
  const OwnVariable mark("CHASKI_TEST_RUN", "interrupted " + std::to_string(::getpid()));
  Program program(on_two(run_story({"-t", "1", "-n", "1000000", "--ignore-eos", "--context-policy",
                                    "shift", "-q"})),
                  "");
  CHECK(soon([&] { return program.out_so_far().size() > 100; }));
  program.signal(SIGINT);
  const Outcome outcome = program.wait();
  CHECK(outcome.status == 128 + SIGINT);
  for (const char* const word : {"error", "mpirun", "---"})
    CHECK_MESSAGE(!outcome.error_says(word), outcome.err);
  CHECK(soon([&] {
    return process_of("CHASKI_TEST_RUN=interrupted " + std::to_string(::getpid()), 1) == 0;
  }));
}

TEST_CASE("cli/hosts: machines of different speeds write what one process writes") {
  if (!can_run()) return;
  const OwnVariable divided("CHASKI_LEAST_BYTES", "0");
  const Arguments run = run_story({"--seed", "7", "-n", "20", "-t", "1"});
  Arguments uneven = on_two(run);
  uneven.insert(uneven.end(), {"--rank-speeds", "2.5,1"});
  CHECK(chaski_run(uneven).out == chaski_run(run).out);
  uneven.back() = "2,1,1";
  check_one_line(chaski_run(uneven), int(Exit::usage),
                 "--rank-speeds has 3 numbers, expected 2, one for each machine");
  check_one_line(chaski_run(run_story({"--rank-speeds", "2,1"})), int(Exit::usage),
                 "--rank-speeds is for several machines, expected --hosts too");
  for (const std::string speeds : {"2,", "0,1", "fast", "-1,1"})
    check_one_line(chaski_run(run_story({"--rank-speeds", speeds})), int(Exit::usage),
                   "a positive number for each machine, such as 2,1");
}

TEST_CASE("cli/hosts: mpirun's messages become one line") {
  const std::string frame = std::string(74, '-') + "\n";
  const auto reason_of = [&](const std::string& text) {
    MpirunText all;
    for (const char c : text) CHECK(all.take({&c, 1}) == "");
    return all.reason();
  };
  CHECK(reason_of(frame +
                  "Primary job  terminated normally, but 1 process returned\na non-zero "
                  "exit code. Per user-direction, the job has been aborted.\n" +
                  frame + frame +
                  "mpirun noticed that process rank 1 with PID 0 on node b exited on signal 9 "
                  "(Killed).\n" +
                  frame) == "b (rank 1) was ended by signal 9");
  CHECK(reason_of("[a:123] PMIX ERROR: UNREACHABLE in file x\n" + frame +
                  "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : "
                  "[[1,0],0] on node a\n  Remote daemon: [[1,0],1] on node b\n\nThis is usually\n" +
                  frame) == "mpirun has lost the connection to b");
  CHECK(reason_of(frame +
                  "There are not enough slots available in the system\nto satisfy it. "
                  "More.\n" +
                  frame) ==
        "mpirun: There are not enough slots available in the system "
        "to satisfy it");
  MpirunText mixed;
  CHECK(
      mixed.take("chaski: note: a\n" + frame + "x\n" + frame +
                 "chaski: error: b (rank 1) has not "
                 "answered for 6 s\nchaski: error: b: a (rank 0) has not answered for 7 s\npart") ==
      "chaski: note: a\nchaski: error: b (rank 1) has not answered for 6 s\n");
  CHECK(mixed.lost());
  CHECK(mixed.reason() == "");
  CHECK(mixed.rest() == "part");
  MpirunText start;
  for (const int rank : {0, 1}) CHECK(start.take(RankSign{rank, "b", false}.text()) == "");
  CHECK(start.take("x" + RankSign{0, "a", true}.text() + "y\n") == "xy\n");
  CHECK(start.late() == "");
  start.take(
      frame +
      "mpirun detected that one or more\n\n  Process name: [[11547,1],1]\n  Exit code:    5\n" +
      frame);
  CHECK(start.reason() == "b (rank 1) ended with status 5");
  // A rank that gave its last sign ended in order, with the status of the command.
  start.take(RankSign{1, "b", true}.text());
  CHECK(start.reason() == "");
  // An error after which a rank goes on does not hide that another one is lost.
  MpirunText later;
  later.take("chaski: error: x\n" + RankSign{1, "b", false}.text());
  CHECK(later.rest() == "");
  CHECK(!later.lost());
  later.take(
      "y\x1e"
      "1 0");
  CHECK(later.rest() == "y");
}

TEST_CASE("cli/hosts: the status of the command is that of the run") {
  if (!can_run()) return;
  const Outcome cut = chaski_run(on_two(run_story({"--regex", "[a-z]{40}", "-n", "3"})));
  CHECK(cut.status == int(Exit::incomplete));
  CHECK_MESSAGE(!cut.error_says("error"), cut.err);
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

TEST_CASE("cli/hosts: a rank that stops or is killed is named within 10 seconds") {
  if (!can_run()) return;
  for (const int signal : {SIGSTOP, SIGKILL})
    for (const int rank : {0, 1}) {
      CAPTURE(signal);
      CAPTURE(rank);
      const std::string name =
          std::to_string(::getpid()) + "-" + std::to_string(signal) + std::to_string(rank);
      const OwnVariable mark("CHASKI_TEST_RUN", name);
      Program program(on_two(run_story({"-t", "1", "-n", "1000000", "--ignore-eos",
                                        "--context-policy", "shift", "-q"})),
                      "");
      CHECK(soon([&] { return program.out_so_far().size() > 100; }));
      const pid_t process = process_of("CHASKI_TEST_RUN=" + name, rank);
      REQUIRE(process > 0);
      const auto start = std::chrono::steady_clock::now();
      ::kill(process, signal);
      const Outcome outcome = program.wait();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      CHECK(outcome.status == int(Exit::io));
      CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
      CHECK_MESSAGE(outcome.error_says("(rank " + std::to_string(rank) + ")"), outcome.err);
      CHECK(took.count() < 10);
      CHECK(soon([&] { return process_of("CHASKI_TEST_RUN=" + name, 1 - rank) == 0; }));
    }
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
