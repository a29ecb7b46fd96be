// quant/encode/gptq.h compared with slow versions in doubles; engine/quantize/feedback.h; --method.
#include "quant/encode/gptq.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/passes/layer_of.h"
#include "engine/quantize/feedback.h"
#include "engine/quantize/quantize.h"
#include "engine/session/engine.h"
#include "quant/encode/encode.h"
#include "quant/formats.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/op_support.h"
#include "tests/kit/program.h"
#include "tests/kit/scratch_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

constexpr Format kFedBack[] = {Format::q4, Format::q4h, Format::q4_0, Format::q5_0, Format::q2,
                               Format::q3, Format::q6,  Format::q4t,  Format::q5};

// Inputs with correlated columns, and a strip of weights.
struct FedLayer {
  static constexpr int64_t kCols = 96, kTokens = 300;
  std::vector<float> x, w;
  Gram gram{kCols};
  FedLayer() {
    for (int64_t t = 0; t < kTokens; ++t) {
      float before = 0;
      for (int64_t c = 0; c < kCols; ++c)
        x.push_back(before = 0.9f * before + noise(uint32_t(t * kCols + c)) * float(1 + c % 7));
    }
    for (int64_t i = 0; i < 16 * kCols; ++i) w.push_back(noise(uint32_t(i + 5000000)));
    // In portions, the last one shorter.
    for (int64_t first = 0; first < kTokens; first += 128) {
      gram.keep(std::min<int64_t>(128, kTokens - first), [&](int64_t t, float* to) {
        std::copy_n(&x[size_t((first + t) * kCols)], kCols, to);
      });
      for (int64_t panel = 0; panel < gram.panels(); ++panel) gram.add(panel);
      gram.drop_kept();
    }
  }
  double slow(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t t = 0; t < kTokens; ++t)
      sum += double(x[size_t(t * kCols + i)]) * x[size_t(t * kCols + j)];
    return sum;
  }
  std::vector<float> errors(Format f, const std::vector<std::byte>& strip) const {
    std::vector<float> e(w.size());
    for (int r = 0; r < 16; ++r) decode_row(f, strip.data(), r, kCols, &e[size_t(r * kCols)]);
    for (size_t i = 0; i < e.size(); ++i) e[i] = w[i] - e[i];
    return e;
  }
  // sum over tokens and rows of (x e)^2.
  double slow_lost(const std::vector<float>& e) const {
    double sum = 0;
    for (int64_t t = 0; t < kTokens; ++t)
      for (int r = 0; r < 16; ++r) {
        double y = 0;
        for (int64_t c = 0; c < kCols; ++c)
          y += double(x[size_t(t * kCols + c)]) * e[size_t(r * kCols + c)];
        sum += y * y;
      }
    return sum;
  }
};

using Square = std::vector<std::vector<double>>;
Square square(size_t n) { return Square(n, std::vector<double>(n)); }

// The inverse by Gauss-Jordan elimination; `a` is positive definite.
Square inverse(Square a) {
  const size_t n = a.size();
  Square b = square(n);
  for (size_t i = 0; i < n; ++i) b[i][i] = 1;
  for (size_t i = 0; i < n; ++i) {
    const double d = a[i][i];
    for (size_t j = 0; j < n; ++j) a[i][j] /= d, b[i][j] /= d;
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double f = a[r][i];
      for (size_t j = 0; j < n; ++j) a[r][j] -= f * a[i][j], b[r][j] -= f * b[i][j];
    }
  }
  return b;
}

// The upper factor U with U^T U = a.
Square upper(const Square& a) {
  const size_t n = a.size();
  Square u = square(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j) {
      double sum = a[i][j];
      for (size_t k = 0; k < i; ++k) sum -= u[k][i] * u[k][j];
      u[i][j] = i == j ? std::sqrt(sum) : sum / u[i][i];
    }
  return u;
}

}  // namespace

TEST_CASE("gptq/a Gram matrix is the products of all columns") {
  const FedLayer layer;
  CHECK(layer.gram.tokens() == FedLayer::kTokens);
  for (int64_t i = 0; i < FedLayer::kCols; i += 5)
    for (int64_t j = 0; j < FedLayer::kCols; ++j) {
      const double scale = std::sqrt(layer.slow(i, i) * layer.slow(j, j));
      CHECK(std::fabs(layer.gram.at(i, j) - layer.slow(i, j)) < 1e-5 * scale);
    }
}

TEST_CASE("gptq/the predicted error of outputs is their error") {
  const FedLayer layer;
  const Feedback feedback(layer.gram);
  const auto ratio = [&](const std::vector<float>& e) {
    return feedback.lost(e.data(), 16) / layer.slow_lost(e);
  };
  const double unit = ratio(layer.w);
  for (const Format f : kFedBack) {
    std::vector<std::byte> strip(strip_bytes(f, FedLayer::kCols));
    encode_strip(f, layer.w.data(), FedLayer::kCols, 16, FedLayer::kCols, strip.data());
    CHECK(ratio(layer.errors(f, strip)) == doctest::Approx(unit).epsilon(1e-3));
  }
}

TEST_CASE("gptq/outputs have less error than after a search, in every format with feedback") {
  const FedLayer layer;
  const Feedback feedback(layer.gram);
  std::vector<float> factors;
  for (int64_t c = 0; c < FedLayer::kCols; ++c) factors.push_back(float(layer.gram.at(c, c)));
  for (const Format f : kFedBack) {
    CAPTURE(info(f).name);
    REQUIRE(feeds_back(f));
    std::vector<std::byte> searched(strip_bytes(f, FedLayer::kCols)), fed = searched;
    encode_strip(f, layer.w.data(), FedLayer::kCols, 16, FedLayer::kCols, searched.data(),
                 factors.data());
    encode_strip(f, layer.w.data(), FedLayer::kCols, 16, FedLayer::kCols, fed.data(), feedback);
    const double share =
        layer.slow_lost(layer.errors(f, fed)) / layer.slow_lost(layer.errors(f, searched));
    MESSAGE(std::string(info(f).name) << ": " << share);
    CHECK(share < 0.75);
  }
  CHECK(!feeds_back(Format::f16));
}

TEST_CASE("gptq/uncorrelated inputs give the result of the search") {
  constexpr int64_t kCols = FedLayer::kCols;
  const FedLayer layer;
  Gram gram(kCols);
  gram.keep(kCols, [&](int64_t t, float* to) {
    std::fill_n(to, kCols, 0.0f);
    to[t] = 2;
  });
  for (int64_t panel = 0; panel < gram.panels(); ++panel) gram.add(panel);
  const Feedback feedback(gram);
  for (const Format f : kFedBack) {
    std::vector<std::byte> searched(strip_bytes(f, kCols)), fed = searched;
    for (const int rows : {16, 5}) {
      encode_strip(f, layer.w.data(), kCols, rows, kCols, searched.data());
      encode_strip(f, layer.w.data(), kCols, rows, kCols, fed.data(), feedback);
      CHECK_MESSAGE(searched == fed, info(f).name);
    }
  }
}

// The paper's algorithm: the inverse, its factor, and each error passed on to all later columns. It
// uses the scales that were chosen, because the paper's grid is given.
TEST_CASE("gptq/codes are those of the paper's recursion") {
  const FedLayer layer;
  constexpr int64_t kCols = FedLayer::kCols;
  const Feedback feedback(layer.gram);
  std::vector<std::byte> strip(strip_bytes(Format::q4_0, kCols));
  encode_strip(Format::q4_0, layer.w.data(), kCols, 16, kCols, strip.data(), feedback);
  // Blocks in the order of their energy, and columns inside blocks too.
  std::vector<double> block(kCols / 32);
  double mean = 0;
  for (int64_t c = 0; c < kCols; ++c)
    block[size_t(c / 32)] += layer.gram.at(c, c), mean += layer.gram.at(c, c) / kCols;
  std::vector<int64_t> order;
  for (int64_t c = 0; c < kCols; ++c) order.push_back(c);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    if (a / 32 != b / 32) return block[size_t(a / 32)] > block[size_t(b / 32)];
    return layer.gram.at(a, a) > layer.gram.at(b, b);
  });
  Square h = square(kCols);
  for (size_t i = 0; i < kCols; ++i)
    for (size_t j = 0; j < kCols; ++j)
      h[i][j] = layer.gram.at(order[i], order[j]) * (i == j ? 1 : 0.7) + (i == j ? 0.01 * mean : 0);
  const Square u = upper(inverse(h));
  const auto* tiles = reinterpret_cast<const Q4_0::Tile*>(strip.data());
  int same = 0;
  for (int r = 0; r < 16; ++r) {
    std::vector<double> w(kCols);
    for (size_t k = 0; k < kCols; ++k) w[k] = layer.w[size_t(r * kCols + order[k])];
    for (size_t k = 0; k < kCols; ++k) {
      const Q4_0::Block b = Q4_0::get(tiles[order[k] / 32], r);
      const double d = f32_of_f16(b.d),
                   code = d != 0 ? std::clamp(std::nearbyint(w[k] / d), -8.0, 7.0) : 0;
      same += int(code) + 8 == nibble_of(b.q, int(order[k] % 32));
      const double error = (w[k] - d * code) / u[k][k];
      for (size_t j = k + 1; j < kCols; ++j) w[j] -= error * u[k][j];
    }
  }
  // A value half way between two codes may round either way.
  CHECK(same >= 16 * kCols - 2);
}

TEST_CASE("gptq/the result does not depend on groups, and each expert has its own feedback") {
  const TempFolder folder;
  const std::string path = write_scratch_model(folder / "m.quipu", Format::f32);
  EngineOptions o;
  o.model = path, o.device = "cpu", o.context = kCalibrationWindow;
  const auto engine = Engine::open(o);
  const CalibrationText text{"text", "", engine, tokens_for(*engine, kCalibrationWindow), 1};
  std::vector<Feedbacks::Expected> weights;
  for (const Weight& w : engine->weights()->tensors)
    if (w.info.tiled() && w.info.cols % 32 == 0) weights.push_back({{w.info.name}, w.info.cols});
  const int64_t experts = 4;
  for (const char* name : {"layer.1.gate", "layer.1.up", "layer.1.down"})
    for (int64_t e = 0; e < experts; ++e)
      weights.push_back({{name, e}, engine->weights()->find(name)->info.cols});
  Feedbacks together(text, 2), apart(text, 1, 1);
  together.expect(weights), apart.expect(weights);
  int found = 0;
  for (const auto& [rows, cols] : weights) {
    CAPTURE(rows.weight);
    const auto a = together.of(rows), b = apart.of(rows);
    REQUIRE(bool(a) == bool(b));
    if (!a) continue;
    ++found;
    CHECK(a->factors() == b->factors());
    const std::vector<float> ones(size_t(16 * cols), 1.0f);
    CHECK(a->lost(ones.data(), 16) == b->lost(ones.data(), 16));
  }
  CHECK(found > 0);
  CHECK(!together.of({"layer.1.gate"}));  // the experts as a whole
  std::set<std::vector<float>> factors;
  for (int64_t e = 0; e < experts; ++e) {
    const auto gate = together.of({"layer.1.gate", e}), up = together.of({"layer.1.up", e});
    REQUIRE((gate && up));
    CHECK(gate->factors() == up->factors());
    factors.insert(gate->factors());
  }
  CHECK(factors.size() == size_t(experts));
  CHECK(!together.of({"token_embd"}));  // the head
}

TEST_CASE("gptq/a group runs the text through its own layers only") {
  const TempFolder folder;
  const std::string path = write_scratch_model(folder / "m.quipu", Format::f32);
  EngineOptions o;
  o.model = path, o.device = "cpu", o.context = kCalibrationWindow;
  const auto engine = Engine::open(o);
  const int layers = int(engine->model().n_layers);
  REQUIRE(layers > 1);
  const CalibrationText text{"text", "", engine, tokens_for(*engine, kCalibrationWindow), 1};
  std::vector<Feedbacks::Expected> weights;
  uint64_t largest = 0;
  for (int layer = 0; layer < layers; ++layer) {
    uint64_t bytes = 0;
    for (const Weight& w : engine->weights()->tensors)
      if (w.info.tiled() && w.info.cols % 32 == 0 && layer_of(w.info.name) == layer)
        weights.push_back({{w.info.name}, w.info.cols}), bytes += Gram::bytes(w.info.cols);
    largest = std::max(largest, bytes);
  }
  const auto layers_read = [&](uint64_t group_bytes) {
    Feedbacks feedbacks(text, 1, group_bytes);
    feedbacks.expect(weights);
    for (const auto& w : weights) (void)feedbacks.of(w.rows);
    return feedbacks.layers_read();
  };
  CHECK(layers_read(uint64_t(1) << 30) == layers);
  CHECK(layers_read(largest) == layers);             // a group for every layer
  CHECK(layers_read(1) == int64_t(weights.size()));  // for every weight: its layer once
}

TEST_CASE("cli/quantize --method gptq: same bytes for any threads, nearer to the base, and shown") {
  const TempFolder folder;
  const std::string base = kStory,
                    text = write_file(folder / "text.txt", read_file(kCalibrationText));
  const auto quantized = [&](const std::string& name, std::vector<std::string> flags) {
    std::vector<std::string> all{"quantize",    base, folder / name, "--type", "q4_0",
                                 "--calibrate", text, "--chunks",    "4"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = chaski_run(all);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  const std::string report = quantized("one", {"--method", "gptq", "-t", "1"});
  CHECK_MESSAGE(contains(report, "gptq: output error "), report);
  CHECK_MESSAGE(contains(report, "mean output error of "), report);
  quantized("three", {"--method", "gptq", "-t", "3"});
  quantized("search", {"--method", "search"});
  CHECK(read_file(folder / "one") == read_file(folder / "three"));
  const Outcome shown = chaski_run({"inspect", folder / "one"});
  CHECK_MESSAGE(contains(shown.out, "quantize.method"), shown.out);
  const auto kl = [&](const std::string& name) {
    const Outcome outcome = chaski_run({"eval", "-m", folder / name, "--kl", base, "-c", "128",
                                        "--chunks", "4", "-f", kEvaluationText, "--json"});
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return nlohmann::json::parse(outcome.out)["kl"].get<double>();
  };
  CHECK(kl("one") < kl("search"));
  const nlohmann::json json = nlohmann::json::parse(quantized("json", {"--json"}));
  int fed_back = 0;
  for (const auto& tensor : json["tensors"])
    if (tensor.contains("outputs")) {
      const auto& outputs = tensor["outputs"];
      CHECK(outputs["relative_squared_error"].get<double>() <= outputs["by_search"].get<double>());
      fed_back += outputs["method"] == "gptq";
    }
  CHECK(fed_back > 0);
  check_one_line(chaski_run({"quantize", base, folder / "x", "--method", "gptq"}), 2,
                 "--method is gptq: it needs --calibrate");
}

TEST_CASE("cli/quantize --resume: also with feedback, and saved measurements are reused") {
  if (!can_preload()) return;
  const TempFolder folder;
  const std::string text = write_file(folder / "text.txt", read_file(kCalibrationText));
  const auto run = [&](const std::string& name, const std::string& fault,
                       const std::string& form = "--json") {
    return Program({"-c", "export LD_PRELOAD=" + faults_shim() + " " + fault + "; exec " +
                              chaski_binary() + " quantize " + kStory + " " + folder / name +
                              " --type q4_0 --calibrate " + text + " --chunks 2 --stats " +
                              folder / name + ".stats --method gptq -t 1 --resume " + form},
                   "", "", "/bin/sh")
        .wait();
  };
  const Outcome undisturbed = run("whole", "FAULT_COUNT=" + folder / "count");
  REQUIRE_MESSAGE(undisturbed.status == 0, undisturbed.err);
  const std::string counts = read_file(folder / "count");
  const int all = std::atoi(counts.c_str() + counts.find("pwrite ") + 7);
  REQUIRE(run("out", "FAULT_KILL=pwrite:" + std::to_string(all - 40)).status == 128 + 9);
  const auto when = std::filesystem::last_write_time(folder / "out.stats");
  const Outcome resumed = run("out", "X=");
  REQUIRE_MESSAGE(resumed.status == 0, resumed.err);
  CHECK((read_file(folder / "out") == read_file(folder / "whole")));
  CHECK(std::filesystem::last_write_time(folder / "out.stats") == when);
  auto before = nlohmann::json::parse(undisturbed.out), after = nlohmann::json::parse(resumed.out);
  const auto kept = after["kept_tensors"].get<size_t>();
  CHECK(kept > 10);
  CHECK(kept < after["tensors"].size());
  CHECK(before["tensors"] == after["tensors"]);
  // Kept tensors do not count for the rate: they are counted before the first input is read.
  std::filesystem::remove(folder / "out"), std::filesystem::remove(folder / "out.stats");
  REQUIRE(run("out", "FAULT_KILL=pwrite:" + std::to_string(all - 40)).status == 128 + 9);
  const Outcome lines = run("out", "X=", "--jsonl");
  const auto first = nlohmann::json::parse(lines.out.substr(0, lines.out.find('\n')));
  CHECK_MESSAGE(first["tensor"].get<std::string>().starts_with("inputs, window "), lines.out);
  CHECK(first["done"].get<uint64_t>() > 0);
}
