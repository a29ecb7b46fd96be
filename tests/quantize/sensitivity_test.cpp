// engine/quantize/sensitivity.h: how much each weight matters, and runs that are killed while they
// measure it.
#include "engine/quantize/sensitivity.h"

#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "engine/measure/divergence.h"
#include "engine/quantize/quantize.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

CalibrationText text_of(const std::string& model, int windows, int threads = 1) {
  return calibration_text({model, "", windows, threads}, "text", read_file(kCalibrationText));
}

// The mean divergence of a model from the base on the same pieces, with whole passes of two
// engines.
double compared_slowly(const std::string& base, const std::string& model,
                       const TextPieces& pieces) {
  EngineOptions o;
  o.device = "cpu", o.threads = 1;
  double sum = 0;
  o.model = base;
  const auto a = Engine::open(o);
  o.model = model;
  const auto b = Engine::open(o);
  const auto p = a->session(), q = b->session();
  const size_t vocab = size_t(a->vocab_size());
  for (int i = 0; i < pieces.count; ++i) {
    const auto piece =
        std::span(pieces.tokens).subspan(size_t(i * pieces.length), size_t(pieces.length));
    p->rewind(0), q->rewind(0);
    const auto from = p->extend(piece, pieces.scored), to = q->extend(piece, pieces.scored);
    for (int t = 0; t < pieces.scored; ++t)
      sum +=
          divergence(from.subspan(size_t(t) * vocab, vocab), to.subspan(size_t(t) * vocab, vocab));
  }
  return sum / (pieces.count * pieces.scored);
}

}  // namespace

TEST_CASE("sensitivity/from a weight's layer on, it is what whole passes of two models give") {
  const TempFolder folder;
  const CalibrationText text = text_of(kStory, 2);
  uint64_t last = 0, total = 0;
  size_t calls = 0;
  Calibration known = calibrate(text, [&](const FileProgress& p) {
    CHECK(p.done >= last);
    last = p.done, total = p.total, ++calls;
  });
  CHECK(last == total);
  CHECK(total == 2 * kCalibrationWindow);
  CHECK(calls > 40);  // within a window too, so that the time left is soon known
  last = 0;
  const ModelSource in = source_of(open_quipu(kStory));
  const WeightJobs jobs = jobs_of(in);
  measure_sensitivity(text, jobs, known, 1, [&](const FileProgress& p) {
    CHECK(p.done > last);
    last = p.done, total = p.total;
  });
  CHECK(last == total);
  CHECK(total == sensitivity_work(text, jobs));
  CHECK(known.kl.size() == candidates(jobs).size());
  const TextPieces pieces = text_pieces(text);
  CHECK(int(pieces.tokens.size()) == pieces.count * pieces.length);
  for (const char* name :
       {"token_embd", "layer.0.attn_k", "layer.2.attn_v", "layer.3.ffn_up", "layer.5.ffn_down"}) {
    CAPTURE(name);
    QuantizeOptions options;
    options.method = RoundingMethod::search, options.calibration = &known;
    for (const TensorSource& t : in.tensors)
      if (t.info.tiled())
        options.recipe[t.info.name] = t.info.name == name ? kProbe : t.info.format;
    quantize_model(kStory, folder / "changed", options, {});
    CHECK(known.kl.at(name) ==
          doctest::Approx(compared_slowly(kStory, folder / "changed", pieces)).epsilon(1e-3));
  }
}

TEST_CASE("sensitivity/the same numbers with any threads, and where an earlier run stopped") {
  const TempFolder folder;
  const CalibrationText text = text_of(kStory, 3);
  std::vector<Calibration> kept;
  const auto keep = [&](const Calibration& c) { kept.push_back(c); };
  Calibration whole = calibrate(text, {}, {}, keep);
  REQUIRE(kept.size() == 2);  // after each window but the last
  const ModelSource in = source_of(open_quipu(kStory));
  const WeightJobs jobs = jobs_of(in);
  measure_sensitivity(text, jobs, whole, 1, {}, keep);
  REQUIRE(kept.size() == 2 + whole.kl.size());
  const CalibrationText again = text_of(kStory, 3, 3);
  for (const size_t at : {size_t(0), size_t(1), size_t(2), kept.size() / 2, kept.size() - 1}) {
    CAPTURE(at);
    save_calibration(folder / "kept", kept[at], kStory);
    Calibration resumed = calibrate(again, {}, load_calibration(folder / "kept"));
    CHECK(resumed.tokens == whole.tokens);
    CHECK(resumed.model == whole.model);
    REQUIRE(resumed.inputs.size() == whole.inputs.size());
    for (const auto& [name, in] : whole.inputs) {
      CHECK(resumed.inputs.at(name).sums == in.sums);
      CHECK(resumed.inputs.at(name).tokens == in.tokens);
    }
    resumed.kl = kept[at].kl;
    size_t measured = 0;
    measure_sensitivity(again, jobs, resumed, 3, {}, [&](const Calibration&) { ++measured; });
    CHECK(measured == whole.kl.size() - kept[at].kl.size());
    CHECK(resumed.kl == whole.kl);
  }
}

TEST_CASE("cli/quantize --size --resume: killed or interrupted while it plans, it goes on") {
  const TempFolder folder;
  const std::string text = write_file(folder / "text.txt", read_file(kCalibrationText));
  const auto start = [&](const std::string& out, Arguments more) {
    more.insert(more.begin(), {"quantize", kStory, folder / out, "--calibrate", text, "--size",
                               "2M", "--method", "search", "-t", "1"});
    return Program(more, "");
  };
  REQUIRE(start("whole", {}).wait().status == 0);
  const auto hidden = [&](const std::string& out) { return folder / ("." + out + ".stats"); };
  CHECK(!std::filesystem::exists(hidden("whole")));
  int n = 0;
  // each signal once, and each place of the measurements
  for (const auto& [signal, named] : {std::pair{SIGKILL, false}, {SIGINT, true}}) {
    const std::string out = "out" + std::to_string(++n),
                      stats = named ? folder / (out + ".gguf") : hidden(out);
    CAPTURE(out);
    Arguments flags{"--resume"};
    if (named) flags.insert(flags.end(), {"--stats", stats});
    {
      Program killed = start(out, flags);
      while (!std::filesystem::exists(stats)) usleep(1000);
      killed.signal(signal);
      CHECK(killed.wait().status == 128 + signal);
    }
    CHECK(!std::filesystem::exists(folder / out));
    CHECK(load_calibration(stats).tokens > 0);
    const Outcome resumed = start(out, flags).wait();
    REQUIRE_MESSAGE(resumed.status == 0, resumed.err);
    CHECK_MESSAGE(resumed.error_says(stats + ": measurements of an earlier run are continued: "),
                  resumed.err);
    CHECK((read_file(folder / out) == read_file(folder / "whole")));
    CHECK(std::filesystem::exists(stats) == named);
  }
  // Measurements of something else are not continued, and stay as they are.
  const std::string stats = folder / "out2.gguf", kept = read_file(stats);
  const auto refused = [&](Arguments flags, const std::string& says) {
    flags.insert(flags.end(), {"--stats", stats, "--resume"});
    check_one_line(start("x", flags).wait(), 2, says);
    CHECK(read_file(stats) == kept);
  };
  refused({"--chunks", "1"}, "the measurements are of ");
  write_file(text, "Once upon a time. " + read_file(kCalibrationText));
  refused({}, "the measurements are of another text (text.txt), expected those of an earlier run");
  write_file(text, read_file(kCalibrationText));
  REQUIRE(chaski_run({"quantize", kStory, folder / "q4", "--type", "q4"}).status == 0);
  check_one_line(chaski_run({"quantize", folder / "q4", folder / "x", "--calibrate", text, "--size",
                             "2M", "--stats", stats, "--resume"}),
                 2, "the measurements are of another model");
}
