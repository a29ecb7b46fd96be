// Scales of --method awq: they change no logits, and less is lost with them.
#include "engine/quantize/awq.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/session/engine.h"
#include "engine/session/session.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/op_support.h"
#include "tests/kit/program.h"
#include "tests/kit/scratch_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// A model in f32, with its tensors scaled.
std::shared_ptr<const Weights> in_floats(const ModelSource& in, const Scales& scales) {
  ModelSource out{in.path, in.kind, in.meta, {}, in.storage};
  for (const TensorSource& t : in.tensors) {
    const auto found = scales.find(t.info.name);
    out.tensors.push_back(scaled(t, found == scales.end() ? TensorScales{} : found->second));
  }
  return load(out, 1);
}

std::vector<float> logits_of(std::shared_ptr<const Weights> weights) {
  EngineOptions o;
  o.device = "cpu", o.kv = Format::f32, o.threads = 1;
  const auto engine = Engine::over(std::move(weights), o);
  const auto session = engine->session();
  const auto logits = session->extend(tokens_for(*engine, 24), 24);
  return {logits.begin(), logits.end()};
}

}  // namespace

TEST_CASE("awq/scaling readers and makers of a fold does not change the logits") {
  const TempFolder folder;
  std::map<std::string, size_t> folds_by_model;
  const auto check = [&](const std::string& name, const std::string& path) {
    CAPTURE(name);
    const ModelSource in = open_model(path).source;
    const std::vector<Fold> folds = folds_of(in);
    Scales scales;
    uint32_t seed = 1;
    for (const Fold& fold : folds) {
      std::vector<float> by_row;
      for (int64_t i = 0; i < fold.rows; ++i) by_row.push_back(std::exp2(3 * noise(seed++)));
      apply(fold, by_row, scales);
    }
    folds_by_model[name] = folds.size();
    const std::vector<float> before = logits_of(in_floats(in, {})),
                             after = logits_of(in_floats(in, scales));
    double most = 0, off = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      most = std::max(most, std::fabs(double(before[i])));
      off = std::max(off, std::fabs(double(after[i]) - double(before[i])));
    }
    MESSAGE(name << ": " << folds.size() << " folds, logits off by " << off / most);
    CHECK(off <= 1e-5 * most);
  };
  check("story", kStory);
  check("scratch", write_scratch_model(folder / "scratch"));
  for (const char* name :
       {"llama_biases", "llama_mqa_tied", "gpt2", "phi2", "bloom", "falcon", "gemma2", "gemma3n",
        "cohere2", "olmo2", "stablelm", "starcoder2", "mpt", "glm4", "phi3"})
    if (std::filesystem::exists(golden(std::string("models/") + name)))
      check(name, golden(std::string("models/") + name));
  // Norm to q, k and v; values to output; norm to gate and up; up to down.
  CHECK(folds_by_model["llama_biases"] % 4 == 0);
  CHECK(folds_by_model["llama_biases"] > 0);
  CHECK(folds_by_model["gpt2"] > 0);
}

TEST_CASE("awq/folds are those of a llama, head by head") {
  const ModelSource in = open_model(golden("models/llama_gqa_untied")).source;
  const auto folds = folds_of(in);
  const auto reader = [&](const std::string& name) {
    for (const Fold& fold : folds)
      if (std::count(fold.readers.begin(), fold.readers.end(), name) > 0) return fold;
    FAIL("nothing is folded for ", name);
    return Fold{};
  };
  using Names = std::vector<std::string>;
  CHECK(reader("layer.0.attn_k").readers ==
        Names{"layer.0.attn_q", "layer.0.attn_k", "layer.0.attn_v"});
  CHECK(reader("layer.0.attn_k").makers == Names{"layer.0.attn_norm"});
  CHECK(reader("layer.0.ffn_up").makers == Names{"layer.0.ffn_norm"});
  CHECK(reader("layer.0.ffn_down").makers == Names{"layer.0.ffn_up"});
  const Fold output = reader("layer.0.attn_output");
  CHECK(output.makers == Names{"layer.0.attn_v"});
  CHECK(output.rows < int64_t(output.row_of.size()));  // query heads share values
  CHECK(*std::max_element(output.row_of.begin(), output.row_of.end()) == output.rows - 1);
  for (const Fold& fold : folds)
    CHECK(std::count(fold.readers.begin(), fold.readers.end(), "output") == 0);
}

TEST_CASE("cli/quantize --method awq: same bytes for any threads, loses less, and shown") {
  const TempFolder folder;
  const std::string text = write_file(folder / "text.txt", read_file(kCalibrationText));
  const auto quantized = [&](const std::string& name, std::vector<std::string> flags) {
    std::vector<std::string> all{"quantize", kStory,    folder / name, "--type",
                                 "q4_0",     "--stats", folder / "s"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = chaski_run(all);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  const std::string report =
      quantized("one", {"--calibrate", text, "--chunks", "2", "--method", "awq", "-t", "1"});
  CHECK_MESSAGE(contains(report, "awq, power 0."), report);
  const auto json =
      nlohmann::json::parse(quantized("three", {"--method", "awq", "-t", "3", "--json"}));
  CHECK(read_file(folder / "one") == read_file(folder / "three"));
  int divided = 0;
  double lost = 0, without = 0;
  for (const auto& tensor : json["tensors"]) {
    if (!tensor.contains("awq")) continue;
    ++divided;
    CHECK(tensor["awq"]["power"].get<double>() > 0);
    lost += tensor["awq"]["error"].get<double>(), without += tensor["awq"]["without"].get<double>();
  }
  CHECK(divided > 0);
  CHECK(lost < without);
  const Outcome shown = chaski_run({"inspect", folder / "one"});
  CHECK_MESSAGE(contains(shown.out, "awq"), shown.out);
  // Also with feedback.
  const std::vector<std::string> both = {"--calibrate", text,       "--chunks",
                                         "2",           "--method", "awq+gptq"};
  auto again = both;
  const std::string stats = read_file(folder / "s");
  Arguments over{"quantize", kStory, folder / "both", "--stats", folder / "s"};
  over.insert(over.end(), both.begin(), both.end());
  check_one_line(
      chaski_run(over), 2,
      "exists already: name another file, leave out --calibrate to read it, or add --resume");
  CHECK(read_file(folder / "s") == stats);
  std::filesystem::remove(folder / "s"), quantized("both", both);
  std::filesystem::remove(folder / "s"), again.insert(again.end(), {"-t", "1"});
  quantized("again", again);
  CHECK(read_file(folder / "both") == read_file(folder / "again"));
  CHECK(read_file(folder / "both") != read_file(folder / "one"));
  check_one_line(chaski_run({"quantize", kStory, folder / "y", "--method", "awq"}), 2,
                 "--method is awq: it needs --calibrate");
}
