// A mapped model without experts that is larger than memory: the same bits, and a bounded ring.
#include "ggml-like-tensor/weight_stream.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/passes/placement.h"
#include "engine/session/session.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/expert_model.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::string story_quipu(const TempFolder& folder) {
  const std::string path = folder / "model.quipu";
  const ModelSource source = open_model("").source;
  write_quipu(path, source, 1);
  return path;
}

std::shared_ptr<Engine> streaming(const std::string& model, uint64_t weight_memory, int threads) {
  EngineOptions o;
  o.model = model, o.device = "cpu", o.threads = threads, o.threads_fixed = true;
  o.weight_memory = weight_memory;
  return Engine::open(o);
}

// A step for each matrix of a layer.
std::vector<StepWeights> layer_steps(const Weights& weights) {
  std::vector<StepWeights> steps;
  for (const Weight& w : weights.tensors)
    if (w.info.name.starts_with("layer.") && w.info.tiled()) steps.push_back({&w});
  return steps;
}

// Enough for the ring, but not for all layers.
uint64_t half_of_layers(const std::string& model) {
  const auto mapped = open_quipu(model);
  uint64_t all = 0;
  for (const StepWeights& s : layer_steps(*mapped)) all += bytes_of(s);
  return all / 2;
}

bool is_there(const WeightStream& stream, const StepWeights& step) {
  for (const Weight* w : step)
    if (std::memcmp(stream.place_of(*w), w->data, w->info.bytes()) != 0) return false;
  return true;
}

}  // namespace

TEST_CASE("weight stream: the logits are those of the model in memory, bit for bit") {
  const TempFolder folder;
  const std::string model = story_quipu(folder);
  const auto logits = [&](Engine& e) {
    std::vector<float> all;
    const auto session = e.session();
    const auto add = [&](std::span<const float> more) {
      all.insert(all.end(), more.begin(), more.end());
    };
    add(session->extend(tokens_for(e, kCpuBatch + 44), 3));  // two batches
    for (int i = 0; i < 5; ++i) add(session->extend(std::vector<TokenId>{TokenId(7 * i + 1)}));
    return all;
  };
  const auto whole = streaming(model, 0, 2);
  CHECK(whole->streamed_bytes() == 0);
  const std::vector<float> want = logits(*whole);
  for (const int threads : {1, 3}) {
    CAPTURE(threads);
    const auto part = streaming(model, half_of_layers(model), threads);
    CHECK(part->streamed_bytes() > 0);
    CHECK(same(logits(*part), want));
  }
}

TEST_CASE("weight stream: loads are there in any order, and are read in advance") {
  const TempFolder folder;
  const auto mapped = open_quipu(story_quipu(folder));
  std::vector<StepWeights> steps = layer_steps(*mapped);
  REQUIRE(steps.size() > 8);
  const auto stream = WeightStream::make(mapped->mapping, steps, {});
  REQUIRE(stream);
  uint64_t all = 0;
  for (const StepWeights& s : steps) all += bytes_of(s);
  CHECK(stream->bytes_a_pass() == all);
  const auto use = [&](size_t load) {
    stream->acquire(int(load));
    CHECK(is_there(*stream, steps[load]));
    stream->release(int(load));
  };
  for (int pass = 0; pass < 3; ++pass)
    for (size_t i = 0; i < steps.size(); ++i) use(i);
  for (int round = 0; round < 20; ++round)
    for (const size_t i : {size_t(1), size_t(2), steps.size() - 1, size_t(5), size_t(3)}) use(i);
  for (size_t i = 4; i < steps.size(); i += 2) use(i);
}

TEST_CASE("weight stream: as much stays in memory as fits, and the rest is spread over a pass") {
  const TempFolder folder;
  std::vector<Weight> weights(40);
  std::vector<StepWeights> steps;
  for (Weight& w : weights) {
    w.info = {"layer.0.a", Format::q8, 1024, int64_t{1024} * (1 + int64_t(steps.size() % 3))};
    steps.push_back({&w});
  }
  uint64_t all = 0;
  for (const StepWeights& s : steps) all += bytes_of(s);
  const uint64_t ring = ring_bytes(steps);
  CHECK(ring > 3 * bytes_of(steps[2]));
  CHECK(streamed_within(steps, all).empty());
  CHECK(streamed_within(steps, ring - 1).empty());
  for (const double part : {0.3, 0.6, 0.9}) {
    CAPTURE(part);
    const auto bytes = ring + uint64_t(part * double(all - ring));
    const std::vector<bool> streamed = streamed_within(steps, bytes);
    REQUIRE(streamed.size() == steps.size());
    uint64_t kept = 0, halves[2] = {};
    for (size_t i = 0; i < steps.size(); ++i)
      (streamed[i] ? halves[i < steps.size() / 2 ? 0 : 1] : kept) += bytes_of(steps[i]);
    CHECK(kept + ring <= bytes);
    CHECK(kept + ring + (4 << 20) > bytes);
    CHECK(double(halves[0]) / double(halves[1]) == doctest::Approx(1).epsilon(0.3));
  }
}

TEST_CASE("weight stream: run -v, plan and errors name it") {
  const TempFolder folder;
  const std::string model = story_quipu(folder);
  const std::string half = std::to_string(half_of_layers(model));
  const Arguments part = {"-m", model, "--device", "cpu", "--weight-memory", half};
  const auto command = [&](Arguments first) {
    first.insert(first.end(), part.begin(), part.end());
    return chaski_run(first);
  };
  const Outcome bench = command({"bench", "-p", "0", "-n", "2", "-r", "1", "-t", "2"});
  REQUIRE_MESSAGE(bench.status == 0, bench.err);
  CHECK(bench.error_says(" of weights were read from the file for every pass"));
  const Outcome plan =
      chaski_run({"plan", model, "--device", "cpu", "--weight-memory", half, "--json"});
  REQUIRE_MESSAGE(plan.status == 0, plan.err);
  const auto json = nlohmann::json::parse(plan.out);
  CHECK(json["read_bytes_a_token"].get<uint64_t>() > 0);
  uint64_t with_all_weights = 0;
  for (const std::string part :
       {"weight_bytes", "state_bytes", "activation_bytes", "program_bytes"})
    with_all_weights += json[part].get<uint64_t>();
  CHECK(json["bytes"].get<uint64_t>() < with_all_weights);
  const Outcome text = chaski_run({"plan", model, "--device", "cpu", "--weight-memory", half});
  CHECK_MESSAGE(text.out.find(" of weights from the file, because --weight-memory leaves no more "
                              "room\n") != std::string::npos,
                text.out);
  check_one_line(
      chaski_run({"bench", "-m", model, "--device", "cpu", "--weight-memory", "1k", "-n", "1"}), 2,
      "--weight-memory is 1000 bytes, expected at least ");
  const Outcome experts =
      chaski_run({"plan", write_expert_model(folder / "e.quipu"), "--weight-memory", "1G"});
  CHECK_MESSAGE(experts.error_says("--weight-memory is not used: the model has experts"),
                experts.err);
}
