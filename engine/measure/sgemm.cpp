#include "engine/measure/sgemm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "engine/passes/random_model.h"
#include "engine/session/engine.h"
#include "ggml-like-tensor/executor.h"

namespace chaski {

namespace {

using Clock = std::chrono::steady_clock;

// OpenBLAS's threads spin for about 30 ms after their work, on cores that the next candidate needs.
constexpr auto kRest = std::chrono::milliseconds(60);

struct Shape3 {
  int64_t tokens, out, in;
  double operations() const { return 2.0 * double(tokens) * double(out) * double(in); }
};

// x and the same kind of random weights in every format, in the layouts that kernels read.
std::shared_ptr<const Weights> random_operands(const Shape3& s, int threads) {
  ModelSource source;
  const auto add = [&](std::string_view name, Format format, int64_t rows) {
    const TensorInfo t{std::string(name), format, rows, s.in};
    source.tensors.push_back({t, [t, rows](int64_t first, int64_t last, std::byte* to) {
                                TensorInfo part = t;
                                part.rows =
                                    std::min(rows - first * kStrip, (last - first) * kStrip);
                                fill_random(part, uint64_t(first), to);
                              }});
  };
  // a single row would be a vector, which is stored in another layout
  add("x", Format::f32, std::max<int64_t>(s.tokens, kStrip));
  for (const Format f : kSgemmFormats)
    if (s.in % info(f).block == 0) add(info(f).name, f, s.out);
  return load(source, threads);
}

std::vector<float> plain_rows(const Weight& w) {
  std::vector<float> rows(size_t(w.info.rows * w.info.cols));
  const Operand operand{
      {w.info.rows, w.info.cols}, w.info.format, const_cast<std::byte*>(w.data), true};
  for (int64_t r = 0; r < w.info.rows; ++r) weight_row(operand, r, rows.data() + r * w.info.cols);
  return rows;
}

// chaski's matmul as a graph: rows of x, quantized if the weight needs it, times the weight.
class Op {
 public:
  Op(int threads, int64_t tokens, const Weight& x, const Weight& w) : executor_(threads) {
    batch_.tokens.resize(size_t(tokens)), batch_.positions.resize(size_t(tokens));
    std::iota(batch_.tokens.begin(), batch_.tokens.end(), 0);
    Graph graph(batch_);
    graph.set_result(graph.matmul(graph.get_rows(x), w));
    plan_ = std::make_unique<Plan>(std::move(graph), cpu_backend(), batch_, where_);
  }
  // Excludes the copy of x, includes its quantization.
  double seconds() {
    std::vector<double> steps;
    executor_.profile = &steps;
    executor_.run(*plan_);
    executor_.profile = nullptr;
    return std::accumulate(steps.begin() + 1, steps.end(), 0.0);
  }
  const float* result() const { return plan_->result(); }

 private:
  Batch batch_;
  PassContext where_;
  Executor executor_;
  std::unique_ptr<Plan> plan_;
};

struct Contender {
  BenchCase about;
  std::function<double()> run;
  std::vector<double> seconds;
};

BenchCase about(BenchCase::Kind kind, const Weight& w, const Shape3& s) {
  BenchCase c;
  c.kind = kind, c.format = info(w.info.format).name, c.tokens = int(s.tokens);
  c.cpu = {double(w.info.bytes()), s.operations(), reads_acts(w.info.format) ? s.operations() : 0};
  return c;
}

// Checks that both compute the same, so that a mistake in the reference cannot distort the figures.
void expect_close(const std::vector<float>& theirs, const float* ours) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < theirs.size(); ++i) {
    difference += std::pow(double(theirs[i]) - double(ours[i]), 2);
    size += std::pow(double(theirs[i]), 2);
  }
  ENSURE(difference <= 1e-8 * size, "sgemm and the op multiply the same matrices");
}

}  // namespace

std::vector<BenchCase> bench_sgemm(Engine& engine, const OpenBlas& blas, int tokens,
                                   int repetitions) {
  const Shape3 s{tokens, engine.meta().integer("model.feed_forward_length"),
                 engine.meta().integer("model.embedding_length")};
  const auto operands = random_operands(s, engine.threads());
  const Weight& x = operands->tensors[0];
  const std::vector<float> plain_x = plain_rows(x), plain_w = plain_rows(operands->tensors[1]);
  std::vector<float> y(size_t(s.tokens * s.out));

  std::vector<Contender> all;
  all.push_back({about(BenchCase::Kind::sgemm, operands->tensors[1], s),
                 [&] {
                   const auto start = Clock::now();
                   blas.multiply(int(s.tokens), int(s.out), int(s.in), plain_x.data(),
                                 plain_w.data(), y.data());
                   const double seconds =
                       std::chrono::duration<double>(Clock::now() - start).count();
                   std::this_thread::sleep_for(kRest);
                   return seconds;
                 },
                 {}});
  for (size_t i = 1; i < operands->tensors.size(); ++i) {
    const auto op = std::make_shared<Op>(engine.threads(), s.tokens, x, operands->tensors[i]);
    all.push_back({about(BenchCase::Kind::matmul, operands->tensors[i], s),
                   [op, i, &y] {
                     const double seconds = op->seconds();
                     if (i == 1) expect_close(y, op->result());
                     return seconds;
                   },
                   {}});
  }
  for (int round = 0; round <= repetitions; ++round)  // the first is a warm-up
    for (Contender& c : all)
      if (const double seconds = c.run(); round > 0) c.seconds.push_back(seconds);
  std::vector<BenchCase> cases;
  for (Contender& c : all) c.about.seconds = spread_of(c.seconds), cases.push_back(c.about);
  return cases;
}

}  // namespace chaski
