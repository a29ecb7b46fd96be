// engine/quantize/outliers.h: columns that are kept in 16 bits next to a matmul of few bits. Tests
// the op, the file, and the command.
#include "engine/quantize/outliers.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/quantize/awq.h"
#include "engine/quantize/quantize.h"
#include "engine/session/engine.h"
#include "engine/session/memory_need.h"
#include "engine/session/session.h"
#include "ggml-like-tensor/executor.h"
#include "models/import/import.h"
#include "quant/encode/encode.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/op_support.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

constexpr int64_t kLayerCols = 512, kLayerRows = 64, kLayerTokens = 48;
const std::vector<int64_t> kLargeColumns = {3, 64, 65, 200, 338, 511};

// A matrix of floats, as a tensor source and in memory.
struct MadeMatrix {
  TensorInfo info;
  std::vector<float> x;  // row by row
  TensorSource source() const {
    return {info, [info = info, x = x](int64_t first, int64_t last, std::byte* dst) {
              if (!info.tiled()) return void(std::memcpy(dst, x.data(), x.size() * sizeof(float)));
              for (int64_t s = first; s < last; ++s, dst += strip_bytes(Format::f32, info.cols))
                encode_strip(Format::f32, x.data() + s * kStrip * info.cols, info.cols,
                             int(std::min<int64_t>(kStrip, info.rows - s * kStrip)), info.cols,
                             dst);
            }};
  }
};
MadeMatrix made_matrix(const char* name, int64_t rows, int64_t cols, uint32_t seed) {
  MadeMatrix m{{name, Format::f32, rows, cols}, {}};
  for (int64_t i = 0; i < rows * cols; ++i) {  // approximately normal
    float sum = 0;
    for (uint32_t k = 0; k < 6; ++k) sum += noise(seed + 7919 * k + uint32_t(i));
    m.x.push_back(sum);
  }
  return m;
}
struct WeightInMemory {
  std::vector<std::byte> bytes;
  Weight weight;
  WeightInMemory(const TensorSource& from, Format to) {
    const TensorInfo& in = from.info;
    weight.info = in, weight.info.format = to;
    bytes.resize(weight.info.bytes() + 64);
    auto* data =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
    weight.data = data;
    if (!in.tiled()) {
      from.read(0, 1, data);
      return;
    }
    std::vector<std::byte> floats(strip_bytes(Format::f32, in.cols));
    std::vector<float> rows(size_t(kStrip * in.cols));
    for (int64_t s = 0; s * kStrip < in.rows; ++s, data += strip_bytes(to, in.cols)) {
      from.read(s, s + 1, floats.data());
      const int n = int(std::min<int64_t>(kStrip, in.rows - s * kStrip));
      for (int r = 0; r < n; ++r)
        decode_row(Format::f32, floats.data(), r, in.cols, rows.data() + r * in.cols);
      encode_strip(to, rows.data(), in.cols, n, in.cols, data);
    }
  }
};

// The outputs of a layer, (tokens, rows), with its weights in `to` and some columns in 16 bits.
std::vector<float> layer_outputs(const MadeMatrix& inputs, const MadeMatrix& weights, Format to,
                                 const std::vector<int64_t>& columns) {
  const bool apart = !columns.empty();
  const std::vector<int64_t> some = apart ? columns : std::vector<int64_t>{0};
  const WeightInMemory x(inputs.source(), Format::f32),
      rest(apart ? without_columns(weights.source(), columns) : weights.source(), to),
      alone(columns_alone(weights.source(), some), Format::f16),
      numbers(column_numbers(weights.info, some), Format::f32);
  Batch batch;
  batch.tokens.resize(size_t(kLayerTokens)), batch.positions.resize(size_t(kLayerTokens));
  std::iota(batch.tokens.begin(), batch.tokens.end(), 0);
  const PassContext where{};
  Graph graph(batch);
  const ValueId in = graph.get_rows(x.weight);
  if (apart) {
    const auto aside = graph.set_aside(in, numbers.weight);
    graph.set_result(
        graph.add(graph.matmul(aside.rest, rest.weight), graph.matmul(aside.taken, alone.weight)));
  } else {
    graph.set_result(graph.matmul(in, rest.weight));
  }
  Plan plan(std::move(graph), cpu_backend(), batch, where);
  Executor executor(1);
  executor.run(plan);
  return {plan.result(), plan.result() + kLayerTokens * kLayerRows};
}

// Their error, as a sum of squares.
double layer_loses(const MadeMatrix& inputs, const MadeMatrix& weights, Format to,
                   const std::vector<int64_t>& columns) {
  const std::vector<float> outputs = layer_outputs(inputs, weights, to, columns);
  double sum = 0;
  for (int64_t t = 0; t < kLayerTokens; ++t)
    for (int64_t r = 0; r < kLayerRows; ++r) {
      double y = 0;
      for (int64_t c = 0; c < kLayerCols; ++c)
        y += double(inputs.x[size_t(t * kLayerCols + c)]) *
             double(weights.x[size_t(r * kLayerCols + c)]);
      sum += std::pow(y - double(outputs[size_t(t * kLayerRows + r)]), 2);
    }
  return sum;
}

InputSquares squares_with(std::vector<float> sums) {
  return {int64_t(sums.size()), std::move(sums), {100}};
}

std::string text_to_read() { return read_file(kCalibrationText); }

// The bundled model with some columns of the norms' outputs times 60; it computes the same.
std::string write_with_outliers(const std::string& path) {
  const ModelSource in = open_model(kStory).source;
  Scales scales;
  for (const Fold& fold : folds_of(in)) {
    if (fold.makers.size() != 1 || !fold.makers[0].ends_with("_norm")) continue;
    std::vector<float> by_row(size_t(fold.rows), 1);
    for (const int64_t c : {1, 40, 41, 77, 120, 191}) by_row[size_t(c)] = 1.0f / 60;
    apply(fold, by_row, scales);
  }
  ModelSource out{in.path, in.kind, in.meta, {}, in.storage};
  for (const TensorSource& t : in.tensors) {
    const auto found = scales.find(t.info.name);
    out.tensors.push_back(found == scales.end() ? t : scaled(t, found->second));
  }
  write_quipu(path, out, 1);
  return path;
}

std::vector<float> story_logits(const std::string& path, size_t chunk = 48, int threads = 1) {
  EngineOptions o;
  o.model = path, o.device = "cpu", o.kv = Format::f32, o.threads = threads;
  const auto engine = Engine::open(o);
  std::vector<TokenId> tokens = engine->tokenizer().encode_prompt(
      "Once upon a time, there was a little girl named Lily. She loved to play with her dog in the "
      "park. One day, she found a big red ball under a tree and wanted to take it home.");
  tokens.resize(std::min<size_t>(tokens.size(), 48));
  const auto session = engine->session();
  std::vector<float> all;
  for (size_t i = 0; i < tokens.size(); i += chunk) {
    const auto part = std::span(tokens).subspan(i, std::min(chunk, tokens.size() - i));
    const auto logits = session->extend(part, int(part.size()));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

}  // namespace

TEST_CASE("outliers/columns above a multiple of the median, and the largest of too many") {
  std::vector<float> sums(64, 2);
  sums[5] = 21, sums[7] = 19, sums[60] = 1e30f, sums[61] = 0;
  CHECK(outliers_of(squares_with(sums), 10) == std::vector<int64_t>{5, 60});
  CHECK(outliers_of(squares_with(sums), 1e20).size() == 1);
  for (int i = 10; i < 20; ++i) sums[size_t(i)] = 20.5f;
  CHECK(outliers_of(squares_with(sums), 10) == std::vector<int64_t>{5, 10, 11, 60});
  CHECK(outliers_of(squares_with(std::vector<float>(64, 0)), 10).empty());
}

TEST_CASE("outliers/a layer with made-up outliers has the same error as without them") {
  const MadeMatrix weights = made_matrix("w", kLayerRows, kLayerCols, 11),
                   plain = made_matrix("x", kLayerTokens, kLayerCols, 5);
  MadeMatrix large = plain;
  for (int64_t t = 0; t < kLayerTokens; ++t)
    for (const int64_t c : kLargeColumns) large.x[size_t(t * kLayerCols + c)] *= 60;
  InputSquares in{kLayerCols, std::vector<float>(size_t(kLayerCols)), {kLayerTokens}};
  for (int64_t i = 0; i < kLayerTokens * kLayerCols; ++i)
    in.sums[size_t(i % kLayerCols)] += large.x[size_t(i)] * large.x[size_t(i)];
  const std::vector<int64_t> found = outliers_of(in, 100);
  CHECK(found == kLargeColumns);
  for (const Format to : {Format::q4, Format::q4_0, Format::q8, Format::q2}) {
    const double none = layer_loses(plain, weights, to, {}),
                 within = layer_loses(large, weights, to, {}),
                 apart = layer_loses(large, weights, to, found);
    MESSAGE(std::string(info(to).name) << ": apart " << apart / none << ", not apart "
                                       << within / none << " times what is lost without outliers");
    CHECK(apart <= 1.1 * none);
    CHECK(within >= 10 * none);
  }
}

TEST_CASE("outliers/a value that is not finite reaches the outputs") {
  const MadeMatrix weights = made_matrix("w", kLayerRows, kLayerCols, 11);
  MadeMatrix x = made_matrix("x", kLayerTokens, kLayerCols, 5);
  x.x[size_t(kLargeColumns[2])] = NAN;
  const std::vector<float> y = layer_outputs(x, weights, Format::q4, kLargeColumns);
  CHECK(std::all_of(y.begin(), y.begin() + kLayerRows, [](float v) { return std::isnan(v); }));
  CHECK(std::none_of(y.begin() + kLayerRows, y.end(), [](float v) { return std::isnan(v); }));
}

TEST_CASE("outliers/a graph sets the same columns of a value aside once") {
  const TempFolder folder;
  const std::string base = write_with_outliers(folder / "base"), out = folder / "out";
  QuantizeOptions options;
  options.type = Format::q4_0, options.outliers = 100, options.threads = 2;
  options.method = RoundingMethod::search;
  const Calibration known =
      calibrate(calibration_text({base, "", 1, 2}, "text", text_to_read()), {});
  options.calibration = &known;
  const QuantizeReport report = quantize_model(base, out, options, {});
  size_t apart = 0;
  for (const QuantizedTensor& t : report.tensors) apart += t.outliers > 0;
  CHECK(apart >= 6 * 5);  // q, k, v, gate, up
  ShapedModel model(open_model(out).source);
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  Graph graph(one);
  (*model).build(graph);
  size_t nodes = 0;
  for (const Node& node : graph.nodes) nodes += std::holds_alternative<SetAside>(node.op);
  CHECK(nodes >= 6 * 2);
  CHECK(nodes == apart - 6 * 3);
  // The predicted memory includes the outliers, also after another quantization.
  uint64_t bytes = 0;
  for (const TensorSource& t : open_model(out).source.tensors)
    bytes += (t.info.bytes() + 63) / 64 * 64;
  const Footprint need(*model, 6, Format::f16, 1);
  CHECK(need.weights() == bytes);
  CHECK(need.weights_in(Format::q2) < bytes);
  // Quantizing again leaves the outliers unchanged.
  options.outliers = 0, options.calibration = nullptr, options.type = Format::q8;
  const QuantizeReport again = quantize_model(out, folder / "again", options, {});
  for (const QuantizedTensor& t : again.tensors)
    if (t.name.ends_with(kOutlierWeight)) {
      CHECK(t.from == t.to);
      CHECK(t.reason == "outlier columns keep their own format");
    }
  CHECK(same(story_logits(out), story_logits(out, 1, 3)));
  CHECK(same(story_logits(out), story_logits(out, 7, 2)));
}

TEST_CASE("outliers/a model with made-up outliers is as near to its base as one without") {
  const TempFolder folder;
  const std::string base = write_with_outliers(folder / "base");
  const std::vector<float> want = story_logits(kStory);
  const auto off = [&](const std::string& in, double outliers, bool awq) {
    const Calibration known =
        calibrate(calibration_text({in, "", 1, 2}, "text", text_to_read()), {});
    QuantizeOptions options;
    options.type = Format::q4_0, options.outliers = outliers, options.calibration = &known;
    options.awq = awq, options.method = RoundingMethod::search, options.keep_above = 1;
    quantize_model(in, folder / "out", options, {});
    const std::vector<float> got = story_logits(folder / "out");
    REQUIRE(got.size() == want.size());
    double lost = 0, all = 0;
    for (size_t i = 0; i < got.size(); ++i)
      lost += std::pow(double(got[i]) - double(want[i]), 2), all += std::pow(double(want[i]), 2);
    return lost / all;
  };
  const double none = off(kStory, 0, false), within = off(base, 0, false),
               apart = off(base, 100, false), both = off(base, 100, true);
  MESSAGE("logits lose " << none << " without outliers, " << within << " with, " << apart
                         << " with these apart, and awq " << both);
  CHECK(apart <= 1.1 * none);
  CHECK(both <= 1.5 * none);
  CHECK(within >= 2 * none);
}

TEST_CASE("outliers/files with missing or inconsistent outlier tensors are refused by name") {
  const TempFolder folder;
  const ModelSource in = open_model(kStory).source;
  const TensorSource& q = *in.find("layer.0.attn_q");
  const auto opened = [&](std::vector<TensorSource> more) {
    ModelSource with = in;
    for (TensorSource& t : more) with.tensors.push_back(std::move(t));
    return std::string(error_of([&] { expect_model(with); }).what());
  };
  CHECK(contains(opened({column_numbers(q.info, {1, 2})}),
                 "tensor layer.0.attn_q.outlier_weight is missing, expected it together with "
                 "layer.0.attn_q.outliers"));
  CHECK(contains(opened({columns_alone(q, {1, 2})}), "tensor layer.0.attn_q.outliers is missing"));
  CHECK(contains(opened({column_numbers(q.info, {1, 2, 3}), columns_alone(q, {1, 2})}),
                 "has 3 columns, expected the number of layer.0.attn_q.outlier_weight"));
  const std::vector<int64_t> too_many(193, 0);
  CHECK(contains(opened({column_numbers(q.info, too_many), columns_alone(q, too_many)}),
                 "at most that of layer.0.attn_q"));
  const auto run = [&](const std::vector<int64_t>& columns) {
    ModelSource with = in;
    with.tensors.push_back(column_numbers(q.info, columns));
    with.tensors.push_back(columns_alone(q, {1, 2}));
    return std::string(error_of([&] { Engine::over(load(with, 1), {}); }).what());
  };
  CHECK(contains(run({2, 2}),
                 "tensor layer.0.attn_q.outliers has 2 at index 1, expected "
                 "ascending column numbers"));
  CHECK(contains(run({1, 192}), "has 192 at index 1"));
  CHECK(contains(run({-1, 2}), "has -1 at index 0"));
  const TensorSource& norm = *in.find("output_norm");
  CHECK(contains(opened({column_numbers(norm.info, {1})}), "has no place in a llama model"));
}

TEST_CASE("outliers/only where the graph multiplies them") {
  const std::set<std::string> llama = can_set_aside(open_model(kStory).source);
  CHECK(llama.size() == 6 * 7);
  CHECK(llama.count("layer.3.ffn_down") == 1);
  CHECK(llama.count("token_embd") == 0);
  const std::set<std::string> gpt2 = can_set_aside(open_model(golden("models/gpt2")).source);
  CHECK(gpt2.count("layer.0.attn_qkv") == 0);
  CHECK(gpt2.count("layer.0.ffn_down") == 1);
  // Otherwise the graph would ignore them.
  for (const char* name : {"layer.0.attn_qkv", "layer.0.ffn_down"}) {
    ModelSource with = open_model(golden("models/gpt2")).source;
    const TensorSource& weight = *with.find(name);
    const TensorSource numbers = column_numbers(weight.info, {0}),
                       apart = columns_alone(weight, {0});
    with.tensors.push_back(numbers), with.tensors.push_back(apart);
    const std::string says = error_of([&] { Engine::over(load(with, 1), {}); }).what();
    CHECK_MESSAGE(contains(says, "tensor layer.0.attn_qkv.outlier_weight is unexpected") ==
                      (gpt2.count(name) == 0),
                  says);
  }
}

TEST_CASE("cli/quantize --outliers: same bytes for any threads, shown, kept, refused by GGUF") {
  const TempFolder folder;
  const std::string base = write_with_outliers(folder / "base"),
                    text = write_file(folder / "text.txt", text_to_read());
  const auto quantized = [&](const std::string& name, std::vector<std::string> flags) {
    Arguments all{"quantize", base,         folder / name, "--type", "q4_0",
                  "--stats",  folder / "s", "--outliers",  "100"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = chaski_run(all);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  const std::string report =
      quantized("one", {"--calibrate", text, "--chunks", "1", "--method", "search", "-t", "1"});
  CHECK_MESSAGE(contains(report, "columns in 16 bits"), report);
  CHECK_MESSAGE(contains(report, "layer.0.attn_q.outlier_weight"), report);
  const auto json =
      nlohmann::json::parse(quantized("three", {"--method", "search", "-t", "3", "--json"}));
  CHECK(read_file(folder / "one") == read_file(folder / "three"));
  int apart = 0;
  for (const auto& tensor : json["tensors"])
    if (tensor.contains("outlier_columns")) {
      ++apart;
      const bool of_norm = !contains(tensor["name"].get<std::string>(), "attn_output") &&
                           !contains(tensor["name"].get<std::string>(), "ffn_down");
      if (of_norm) CHECK(tensor["outlier_columns"].get<int>() >= 6);
    }
  CHECK(apart >= 6 * 5);
  const Outcome shown = chaski_run({"inspect", folder / "one"});
  CHECK_MESSAGE(contains(shown.out, "quantize.outliers"), shown.out);
  CHECK_MESSAGE(contains(shown.out, "layer.0.ffn_up.outlier_weight"), shown.out);
  CHECK(chaski_run({"run", "-m", folder / "one", "-p", "Once", "-n", "8"}).status == 0);

  check_one_line(chaski_run({"convert", folder / "one", folder / "x.gguf", "-q"}), 3,
                 ".outlier_weight holds outlier columns, which GGUF cannot store");
  check_one_line(
      chaski_run({"convert", folder / "one", folder / "packed", "--layout", "gptq", "-q"}), 3,
      "outlier columns, which GPTQ cannot store");
  REQUIRE(chaski_run({"convert", folder / "one", folder / "copy.quipu"}).status == 0);
  CHECK(same(story_logits(folder / "copy.quipu"), story_logits(folder / "one")));

  // With feedback: no error is fed into the removed columns.
  std::filesystem::remove(folder / "s");
  quantized("fed", {"--calibrate", text, "--chunks", "1", "--method", "awq+gptq", "-t", "1"});
  std::filesystem::remove(folder / "s");
  quantized("again", {"--calibrate", text, "--chunks", "1", "--method", "awq+gptq", "-t", "2"});
  CHECK(read_file(folder / "fed") == read_file(folder / "again"));
  CHECK(read_file(folder / "fed") != read_file(folder / "one"));

  const auto refused = [&](std::vector<std::string> flags, const char* says) {
    Arguments all{"quantize", base, folder / "y"};
    all.insert(all.end(), flags.begin(), flags.end());
    check_one_line(chaski_run(all), 2, says);
  };
  refused({"--outliers", "100"}, "--outliers needs --calibrate");
  refused({"--outliers", "1", "--stats", folder / "s"}, "--outliers is 1, expected more than 1");
  refused({"--outliers", "100", "--fast"}, "--outliers");
  refused({"--outliers", "100", "--stats", folder / "s", "--bpw", "5"}, "--outliers");
  check_one_line(chaski_run({"quantize", folder / "one", folder / "y", "--outliers", "9", "--stats",
                             folder / "s"}),
                 2, "outliers that are set aside already");
  const Outcome none =
      chaski_run({"quantize", base, folder / "y", "--outliers", "1e9", "--stats", folder / "s"});
  CHECK(none.status == 0);
  CHECK_MESSAGE(contains(none.err,
                         "--outliers kept no columns in 16 bits: no column's mean squared input "
                         "is above 1e+09 times"),
                none.err);
}
