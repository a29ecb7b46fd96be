// A mapped model whose experts are not all in memory: the same bits, and bounded memory.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "engine/measure/bench.h"
#include "engine/session/expert_memory.h"
#include "engine/session/session.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/expert_model.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::shared_ptr<Engine> opened(const std::string& model, uint64_t expert_memory, int threads = 2) {
  EngineOptions o;
  o.model = model, o.device = "cpu", o.threads = threads, o.threads_fixed = true;
  o.expert_memory = expert_memory;
  return Engine::open(o);
}

// Logits of a prompt and of some decode steps.
std::vector<float> logits_of(Engine& e) {
  std::vector<float> all;
  const auto add = [&](std::span<const float> more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  const auto session = e.session();
  add(session->extend(tokens_for(e, 70), 3));
  for (int i = 0; i < 12; ++i) add(session->extend(std::vector<TokenId>{TokenId(7 * i + 1)}));
  return all;
}

constexpr uint64_t kAll = 3ull * ExpertModel::kLayers * ExpertModel::kExperts *
                          ExpertModel::kWidth * ExpertModel::kExpertWidth;  // weights of experts

std::vector<ExpertWeight> experts_of(const Weights& weights) {
  std::vector<ExpertWeight> experts;
  for (const Weight& w : weights.tensors)
    if (w.info.name.find("_exps") != std::string::npos)
      experts.push_back({&w, ExpertModel::kExperts});
  return experts;
}

}  // namespace

TEST_CASE("expert cache: the logits are those of the model in memory, bit for bit") {
  const TempFolder folder;
  for (const Format format : {Format::q8, Format::q4_0, Format::f16}) {
    CAPTURE(info(format).name);
    const std::string name(info(format).name);
    const std::string model = write_expert_model(folder / (name + ".quipu"), format);
    const auto whole = opened(model, 0);
    CHECK(!whole->expert_facts());
    const std::vector<float> want = logits_of(*whole);
    for (const int threads : {1, 3}) {
      CAPTURE(threads);
      // The least that runs; and about half of the experts.
      const auto weights = open_quipu(model);
      const auto experts = experts_of(*weights);
      for (const uint64_t bytes : {least_bytes(experts, 3), least_bytes(experts, 7)}) {
        const auto part = opened(model, bytes, threads);
        CHECK(same(logits_of(*part), want));
        const auto facts = part->expert_facts();
        REQUIRE(facts);
        CHECK(facts->bytes <= bytes);
        CHECK(facts->tokens == 12);
        CHECK(facts->wanted == 12 * 3 * ExpertModel::kLayers * ExpertModel::kChosen);
        CHECK(facts->found < facts->wanted);
        CHECK(facts->read > 0);
        CHECK(facts->read_all > facts->read);
      }
    }
  }
}

TEST_CASE("expert cache: the use of experts is kept for later runs, until the file changes") {
  const TempFolder folder;
  const std::string model = write_expert_model(folder / "model.quipu");
  const auto mapped = open_quipu(model);
  const uint64_t bytes = least_bytes(experts_of(*mapped), 5);
  CHECK(kept_expert_uses(model, mapped->state).empty());
  logits_of(*opened(model, bytes));
  const ExpertUses uses = kept_expert_uses(model, mapped->state);
  REQUIRE(uses.size() == 3 * ExpertModel::kLayers);
  for (const auto& [name, of] : uses) {
    CAPTURE(name);
    REQUIRE(of.size() == ExpertModel::kExperts);
    const double sum = std::accumulate(of.begin(), of.end(), 0.0);
    CHECK(sum <= 82 * ExpertModel::kChosen);  // tokens; the first ones count a little less
    CHECK(sum > 79 * ExpertModel::kChosen);
  }
  CHECK(uses_of(text_of_uses(uses)) == uses);
  CHECK(kept_expert_uses(model, "another file\n").empty());
}

// Chance makes some experts look popular.
TEST_CASE("expert cache: the predicted hits are those of tokens that are not counted yet") {
  const TempFolder folder;
  const auto mapped = open_quipu(write_expert_model(folder / "model.quipu"));
  const auto experts = experts_of(*mapped);
  constexpr int kChosen = ExpertModel::kChosen, kExperts = ExpertModel::kExperts;
  const std::vector<int64_t> slots(experts.size(), kExperts / 2);
  const double chosen_part = double(kChosen) / kExperts;
  CHECK(expected_hits(experts, slots, chosen_part, {}) == doctest::Approx(0.5));
  std::mt19937 random(7);
  // Tokens that choose among the first `among` experts.
  const auto hits_after = [&](int tokens, int among) {
    ExpertUses uses;
    for (const ExpertWeight& w : experts) {
      std::vector<double>& of = uses[w.weight->info.name];
      of.resize(kExperts);
      for (int t = 0; t < tokens; ++t) {
        for (double& use : of) use *= std::exp2(-1.0 / 256);
        std::vector<int> order(size_t(among), 0);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        for (int i = 0; i < kChosen; ++i) of[size_t(order[size_t(i)])] += 1;
      }
    }
    return expected_hits(experts, slots, chosen_part, uses_of(text_of_uses(uses)));
  };
  for (const int tokens : {24, 60, 400}) {
    CAPTURE(tokens);
    CHECK(std::abs(hits_after(tokens, kExperts) - 0.5) < 0.07);
    CHECK(hits_after(tokens, kExperts / 2) == 1);
  }
}

TEST_CASE("expert cache: sequences of bench choose experts of their own") {
  const TempFolder folder;
  const std::string model = write_expert_model(folder / "model.quipu", Format::q8);
  const auto read = [&](int sequences) {
    const auto weights = open_quipu(model);
    const auto engine = opened(model, least_bytes(experts_of(*weights), 7));
    BenchOptions o;
    o.prompts = {}, o.decode = 16, o.sequences = {sequences}, o.repetitions = 1;
    o.limits = false;
    bench(std::array{engine}, o, [](const std::string&) {});
    return engine->expert_facts()->read_all;
  };
  CHECK(read(4) > read(1) * 3 / 2);
}

TEST_CASE("expert cache: bench keeps no memory while the experts fill it") {
  const TempFolder folder;
  const std::string model = write_expert_model(folder / "model.quipu", Format::q8);
  const auto weights = open_quipu(model);
  for (const uint64_t bytes : {uint64_t{0}, least_bytes(experts_of(*weights), 7)}) {
    CAPTURE(bytes);
    BenchOptions o;
    o.prompts = {}, o.decode = 2, o.repetitions = 1;
    const BenchResult result =
        bench(std::array{opened(model, bytes)}, o, [](const std::string&) {});
    CHECK(result.limits(result.cases.at(0)).cpu.memory > 0);
    CHECK((result.cases.at(0).memory > 0) == (bytes == 0));
  }
}

TEST_CASE("expert cache: slots are shared out by bytes, and too few bytes are refused") {
  const TempFolder folder;
  const std::string model = write_expert_model(folder / "model.quipu");
  const auto mapped = open_quipu(model);
  const auto experts = experts_of(*mapped);
  REQUIRE(experts.size() == 3 * ExpertModel::kLayers);
  const uint64_t least = least_bytes(experts, 2);
  CHECK(slots_within(experts, least - 1, 2).empty());
  for (const int64_t slots : slots_within(experts, least, 2)) CHECK(slots == 4);
  for (const int64_t slots : slots_within(experts, uint64_t{1} << 40, 2)) CHECK(slots == 16);
  CHECK(!ExpertCache::make(mapped->mapping, experts, least - 1, 2, {}));
  CHECK(ExpertCache::make(mapped->mapping, experts, least, 2, {}));
  const Outcome outcome =
      chaski_run({"run", "-m", model, "--device", "cpu", "-p", "A", "--expert-memory", "1k"});
  check_one_line(outcome, 2, "--expert-memory is 1000 bytes, expected at least ");
  check_one_line(chaski_run({"plan", model, "--device", "cpu", "--expert-memory", "1k"}), 2,
                 "--expert-memory is 1000 bytes, expected at least ");
}

TEST_CASE("expert cache: --expert-memory that changes nothing is answered") {
  const TempFolder folder;
  const std::string model = write_expert_model(folder / "model.quipu"),
                    dense = golden("gguf/tiny_llama_q4_0.gguf");
  const auto check = [](Arguments command, const std::string& why) {
    command.insert(command.end(), {"--device", "cpu", "--expert-memory", "1G"});
    const Outcome outcome = chaski_run(command);
    CHECK(outcome.status == 0);
    CHECK_MESSAGE(outcome.error_says(": --expert-memory is not used: " + why), outcome.err);
  };
  const std::string in_memory = "the weights are in memory, not mapped from a .quipu file";
  check({"run", "-p", "a", "-n", "1"}, "the model has no experts");
  check({"plan", dense}, "the model has no experts");
  check({"run", "-m", model, "-p", "a", "-n", "1", "--load", "copy"}, in_memory);
  check({"plan", model, "--load", "copy"}, in_memory);
}

TEST_CASE("expert cache: a file that was replaced is not read in place of the mapped one") {
  const TempFolder folder;
  const std::string model = write_expert_model(folder / "model.quipu");
  const auto mapped = open_quipu(model);
  std::filesystem::rename(write_expert_model(folder / "other.quipu", Format::q4_0), model);
  CHECK(!ExpertCache::make(mapped->mapping, experts_of(*mapped), uint64_t{1} << 30, 2, {}));
}

TEST_CASE("expert cache: chaski run -v says how many experts were found and read") {
  const TempFolder folder;
  const std::string model = write_expert_model(folder / "model.quipu");
  const Arguments run = {"run",      "-m",   model, "--device", "cpu", "-p", "Once upon a time",
                         "-n",       "20",   "-v",  "--seed",   "1",   "-t", "2",
                         "--verify", "never"};
  const Outcome whole = chaski_run(run);
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  CHECK(!whole.error_says("chosen experts"));
  Arguments part = run;
  const std::string bytes = std::to_string(least_bytes(experts_of(*open_quipu(model)), 4));
  part.insert(part.end(), {"--expert-memory", bytes});
  const Outcome some = chaski_run(part);
  REQUIRE_MESSAGE(some.status == 0, some.err);
  CHECK(some.out == whole.out);
  CHECK(some.error_says("% of the chosen experts were in "));
  CHECK(some.error_says(" MB a token were read from the file"));
}

TEST_CASE("expert cache: chaski plan predicts what a token reads") {
  const TempFolder folder;
  const std::string model = write_expert_model(folder / "model.quipu");
  const auto weights = open_quipu(model);
  const auto experts = experts_of(*weights);
  const uint64_t bytes = least_bytes(experts, 4);
  const Arguments plan = {"plan", model, "--device", "cpu", "-t", "2"};
  CHECK(chaski_run(plan).out.find("experts") == std::string::npos);
  Arguments part = plan;
  part.insert(part.end(), {"--expert-memory", std::to_string(bytes)});
  const Outcome shown = chaski_run(part);
  REQUIRE_MESSAGE(shown.status == 0, shown.err);
  CHECK(shown.out.find("MB a token are read from the file") != std::string::npos);
  CHECK(shown.out.find("experts are read from the file when they are chosen") != std::string::npos);
  part.push_back("--json");
  const auto json = nlohmann::json::parse(chaski_run(part).out);
  uint64_t all = 0;
  for (const ExpertWeight& w : experts) all += w.weight->info.bytes();
  CHECK(all > kAll);  // q8: a byte a weight, and scales
  CHECK(json["expert_bytes"] == all);
  CHECK(json["expert_memory_bytes"] == bytes);
  const double found = json["experts_found"].get<double>();
  CHECK(found == doctest::Approx(6.0 / 16));
  CHECK(json["read_bytes_a_token"].get<double>() ==
        doctest::Approx(double(all) / 4 * (1 - found)).epsilon(0.001));
}
