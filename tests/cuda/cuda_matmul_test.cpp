// The device's matmul compared bit for bit with the documented order of additions
// (cuda/device/order.h): every format, every kernel (1, up to 8, 16 and 128 tokens a block) and
// widths around their limits.
#include "cuda/device/order.h"
#include "cuda/matmul/matmul.h"
#include "tests/kit/cuda_device.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// The product of x (tokens, cols) and a weight (rows, cols); x is quantized for block formats.
struct OneProduct {
  Format format;
  int64_t rows, cols, tokens;
  Buffer weight;
  std::vector<float> x;
  std::vector<Act> acts;
  OpArgs args;

  OneProduct(Format f, int64_t rows, int64_t cols, int64_t tokens)
      : format(f),
        rows(rows),
        cols(cols),
        tokens(tokens),
        weight(random_weight(f, {rows, cols})),
        x(size_t(tokens * cols)) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = 2 * noise(uint32_t(i + 5));
    args.in[0] = {{tokens, cols}, Format::f32, x.data()},
    args.in[1] = {{rows, cols}, f, weight.data(), true};
    if (reads_acts(f)) quantize_input(args, acts);
  }
};

// The decoded blocks of a row, each of 32 columns. They are the same for every token.
template <class F>
std::vector<RowPanel> panels_of(const OneProduct& p, int64_t r) {
  constexpr int kInBlock = F::kBlock / 32;
  const StripOf<F> strip(p.args.in[1].bytes() + r / kStrip * strip_bytes(p.format, p.cols));
  const int row = int(r % kStrip);
  std::vector<RowPanel> panels(size_t(p.cols / 32));
  for (int b = 0; b < int(panels.size()); ++b)
    strip.row(row).panel(F::get(strip.tiles()[b / kInBlock], row), b % kInBlock, panels[size_t(b)]);
  return panels;
}

// The documented order in scalar code: segments of whole groups, block after block; then the
// segments, from first to last.
template <class F>
float in_order(const OneProduct& p, const std::vector<RowPanel>& panels, int64_t t) {
  const int blocks = int(panels.size());
  float total = 0;
  for (int segment = 0; segment < segments_of(groups_of(blocks)); ++segment) {
    const Run run = segment_of(segment, groups_of(blocks));
    float acc = 0;
    for (int b = run.from * kGroupBlocks; b < std::min(run.to * kGroupBlocks, blocks); ++b)
      acc = dot_block(F::kDot, panels[size_t(b)], p.args.in_acts.at(t, b), acc);
    total += acc;
  }
  return total;
}

float weight_at(const OneProduct& p, int64_t r, int64_t c) {
  const std::byte* strip = p.args.in[1].bytes() + r / kStrip * strip_bytes(p.format, p.cols);
  float w = 0;
  Formats::with(p.format, [&]<class F>(F) {
    if constexpr (F::kFloat)
      w = F::at(F::get(StripOf<F>(strip).tiles()[c / F::kBlock], int(r % kStrip)),
                int(c % F::kBlock));
  });
  return w;
}

// The same for weights that are multiplied by fma: a chain for each column modulo four; the chains
// are added by halves.
float in_order_by_fma(const OneProduct& p, int64_t r, int64_t t) {
  const int groups = groups_of(int(p.cols + 31) / 32);
  float total = 0;
  for (int segment = 0; segment < segments_of(groups); ++segment) {
    const Run run = segment_of(segment, groups);
    float chain[4] = {};
    for (int64_t c = run.from * 256; c < std::min<int64_t>(run.to * 256, p.cols); ++c)
      chain[c % 4] = std::fma(weight_at(p, r, c), p.x[size_t(t * p.cols + c)], chain[c % 4]);
    total += (chain[0] + chain[1]) + (chain[2] + chain[3]);
  }
  return total;
}

MatMulPart part_of(const Operand& weight, float* out) {
  return {weight.bytes(), int64_t(strip_bytes(weight.format, weight.shape.cols)), weight.shape.rows,
          out, nullptr};
}
MatMulJob job_of(const OpArgs& a) {
  MatMulJob job;
  job.part[0] = part_of(a.in[1], a.out[0].out_row(0));
  job.x = a.in[0].floats(), job.acts = a.in_acts, job.tokens = a.in[0].shape.rows;
  job.cols = int(a.in[0].shape.cols), job.blocks = (job.cols + 31) / 32;
  return job;
}

// Computes tokens [from, from + n) on the device. Many tokens by the kernel for many tokens, also
// if there are so few rows that launch_matmul() would choose the other one.
std::vector<float> on_device(Device& device, const OneProduct& p, int64_t from, int64_t n) {
  OpArgs a;
  std::vector<float> x(p.x.begin() + from * p.cols, p.x.begin() + (from + n) * p.cols);
  a.n_in = 2;
  a.in[0] = {{n, p.cols}, Format::f32, x.data()};
  std::vector<Act> acts;
  if (reads_acts(p.format)) {
    quantize_input(a, acts);
    a.in_acts.data = device.upload(acts);
  }
  a.in[0].data = device.upload(x);
  a.in[1] = p.args.in[1];
  a.in[1].data = device.upload(p.args.in[1].data, p.weight.size);
  std::vector<float> out(size_t(n * p.rows));
  a.out[0] = {{n, p.rows}, Format::f32, device.poisoned(out.size() * 4)};
  if (n <= 64 || !launch_matmul_tiles(p.format, job_of(a), device.context()))
    cuda_entry_of(MatMul{}).launch(MatMul{}, a, device.context());
  device.download(a.out[0].data, out.data(), out.size() * 4);
  device.free_all();
  return out;
}

}  // namespace

TEST_CASE("cuda: matmul of block formats adds in the documented order, bit for bit") {
  Device device;
  if (!device.available()) return;
  Formats::each([&]<class F>(F) {
    if constexpr (!F::kFloat && kOnDevice<F>) {
      // A group and a block; 18 groups and a block, in segments of one and of two groups. Formats
      // of 256 columns have whole groups only.
      constexpr bool kWide = F::kBlock > 32;
      for (int64_t cols : {kWide ? 256 : 32, kWide ? 512 : 288, kWide ? 4608 : 4640}) {
        for (int64_t tokens : {1, 3, 13, 70}) {
          CAPTURE(F::kName);
          CAPTURE(cols);
          CAPTURE(tokens);
          const OneProduct p(F::kFormat, cols > 1000 ? 20 : 50, cols, tokens);
          const std::vector<float> got = on_device(device, p, 0, tokens);
          int wrong = 0;
          for (int64_t r = 0; r < p.rows; ++r) {
            const std::vector<RowPanel> panels = panels_of<F>(p, r);
            for (int64_t t = 0; t < tokens; ++t)
              wrong += in_order<F>(p, panels, t) != got[size_t(t * p.rows + r)];
          }
          CHECK(wrong == 0);
        }
      }
    }
  });
}

TEST_CASE("cuda: matmul by fma adds in the documented order, bit for bit") {
  Device device;
  if (!device.available()) return;
  for (Format format : {Format::f32, Format::nf4, Format::fp4, Format::f8s})
    for (int64_t cols : {64, 320, 4672})
      for (int64_t tokens : {1, 3, 13}) {
        CAPTURE(info(format).name);
        CAPTURE(cols);
        CAPTURE(tokens);
        const OneProduct p(format, cols > 1000 ? 20 : 50, cols, tokens);
        const std::vector<float> got = on_device(device, p, 0, tokens);
        int wrong = 0;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t r = 0; r < p.rows; ++r)
            wrong += in_order_by_fma(p, r, t) != got[size_t(t * p.rows + r)];
        CHECK(wrong == 0);
      }
}

// 8B on a device of 132 multiprocessors.
TEST_CASE("cuda: a matmul of few rows or tokens takes the kernel that uses all multiprocessors") {
  LaunchContext c;
  c.multiprocessors = 132;
  const auto tiles = [&](Format format, std::vector<int64_t> rows, int64_t tokens,
                         bool gated = false) {
    MatMulJob job;
    job.parts = int(rows.size()), job.tokens = tokens, job.gated = gated;
    for (size_t i = 0; i < rows.size(); ++i) job.part[i].rows = rows[i];
    return prefers_tiles(format, job, c);
  };
  const std::vector<int64_t> qkv{4096, 1024, 1024}, down{4096}, gate_up{14336, 14336};
  for (const int64_t tokens : {16, 64}) CHECK(!tiles(Format::q4, gate_up, tokens, true));
  for (const int64_t tokens : {65, 128, 256}) CHECK(!tiles(Format::q4, down, tokens));
  CHECK(tiles(Format::q4, down, 512));
  CHECK(!tiles(Format::q4, qkv, 128));
  CHECK(tiles(Format::q4, qkv, 256));
  CHECK(tiles(Format::q4, gate_up, 128, true));
  CHECK(!tiles(Format::bf16, down, 128));
  CHECK(tiles(Format::bf16, down, 256));
  for (const Format format : {Format::q4, Format::bf16}) CHECK(tiles(format, down, 2048));
}

// Gated: with an output in floats and one quantized. The last pair of strips has one strip.
TEST_CASE("cuda: the kernels for few and for many tokens give the same bits") {
  Device device;
  if (!device.available()) return;
  const int64_t cols = 512, tokens = 83;
  for (int f = 0; f < kFormatCount; ++f)
    for (const int64_t rows : {int64_t(144), int64_t(160)}) {
      const bool gated = rows % 32 == 0;
      if (!info(Format(f)).on_device) continue;
      CAPTURE(info(Format(f)).name);
      CAPTURE(gated);
      OneProduct p(Format(f), rows, cols, tokens);
      Buffer other = random_weight(Format(f), {rows, cols});
      OpArgs a = p.args;
      if (a.in_acts.data) a.in_acts.data = device.upload(p.acts);
      a.in[0].data = device.upload(p.x);
      a.in[1].data = device.upload(p.weight.data(), p.weight.size);
      std::vector<float> out[2];
      std::vector<std::byte> out_acts[2];
      for (const bool many : {false, true}) {
        a.out[0] = {{tokens, rows}, Format::f32, device.poisoned(size_t(tokens * rows) * 4)};
        MatMulJob job = job_of(a);
        if (gated) {
          job.gated = true, job.part[1] = job.part[0];
          job.part[1].weight = device.upload(other.data(), other.size);
          job.out_acts = {
              static_cast<Act*>(device.poisoned(size_t(tokens * rows / 32) * sizeof(Act))), tokens,
              rows / 32};
        }
        bool launched = true;
        if (many)
          launched = launch_matmul_tiles(p.format, job, device.context());
        else
          launch_matmul_rows(p.format, 16, job, device.context());
        out[many].resize(size_t(tokens * rows));
        device.download(a.out[0].data, out[many].data(), out[many].size() * 4);
        if (!launched) out[many].clear();  // multiplied by fma
        if (!gated) continue;
        out_acts[many].resize(size_t(tokens * rows / 32) * sizeof(Act));
        device.download(job.out_acts.data, out_acts[many].data(), out_acts[many].size());
      }
      device.free_all();
      if (out[1].empty()) continue;
      CHECK(std::memcmp(out[0].data(), out[1].data(), out[0].size() * 4) == 0);
      CHECK(out_acts[0] == out_acts[1]);
    }
}

// Rows of floats may have any length; the tile kernel takes multiples of four.
TEST_CASE("cuda: matmul of every format gives a token the same bits at every width") {
  Device device;
  if (!device.available()) return;
  for (int f = 0; f < kFormatCount; ++f) {
    if (!info(Format(f)).on_device) continue;
    for (int64_t cols :
         info(Format(f)).block == 1 ? std::vector<int64_t>{595, 4364} : std::vector<int64_t>{768}) {
      const OneProduct p(Format(f), 37, cols, 133);
      const std::vector<float> whole = on_device(device, p, 0, p.tokens);
      for (const auto& [from, n] : {std::pair<int64_t, int64_t>{132, 1},
                                    {0, 2},
                                    {5, 3},
                                    {125, 8},
                                    {9, 16},
                                    {16, 17},
                                    {3, 64},
                                    {33, 100}}) {
        CAPTURE(info(Format(f)).name);
        CAPTURE(cols);
        CAPTURE(from);
        CAPTURE(n);
        const std::vector<float> part = on_device(device, p, from, n);
        CHECK(std::memcmp(part.data(), whole.data() + from * p.rows, part.size() * 4) == 0);
      }
    }
  }
}

// The error that float_dot.cuh guarantees for its two parts of x: each token's NMSE is below 2^-34.
// It holds for every size of x, for every size of other tokens in the batch, and if one column is
// ten million times as large as the others.
TEST_CASE("cuda: matmul of 16-bit floats has an NMSE below 2^-34, x large or small") {
  Device device;
  if (!device.available()) return;
  for (Format format : {Format::f16, Format::bf16})
    for (float size : {format == Format::f16 ? 1e-36f : 1e-30f, 1e-6f, 1.0f, 1e6f, 1e27f})
      for (int64_t tokens : {1, 3, 20, 66})
        for (bool massive : {false, true}) {
          CAPTURE(info(format).name);
          CAPTURE(size);
          CAPTURE(tokens);
          CAPTURE(massive);
          OneProduct p(format, 40, 300, tokens);
          for (size_t i = 0; i < p.x.size(); ++i) {
            const size_t t = i / size_t(p.cols), c = i % size_t(p.cols);
            p.x[i] *= size * (t % 2 ? 900 : 1) * (massive && c == 37 ? 1e7f : 1);
          }
          const std::vector<float> got = on_device(device, p, 0, tokens);
          double worst = 0;
          for (int64_t t = 0; t < tokens; ++t) {
            double error = 0, square = 0;
            for (int64_t r = 0; r < p.rows; ++r) {
              double want = 0;
              for (int64_t c = 0; c < p.cols; ++c)
                want += double(weight_at(p, r, c)) * p.x[size_t(t * p.cols + c)];
              error += std::pow(got[size_t(t * p.rows + r)] / size - want / size, 2),
                  square += std::pow(want / size, 2);
            }
            worst = std::max(worst, error / square);
          }
          CHECK(worst < 0x1p-34);
        }
}

// More pairs of strips than blocks: a block takes one after another and requests weights ahead.
TEST_CASE("cuda: matmul of many rows by few blocks") {
  Device device;
  if (!device.available()) return;
  for (Format format : {Format::q4, Format::q6_k, Format::f16})
    for (int64_t tokens : {1, 2, 9}) {
      CAPTURE(info(format).name);
      CAPTURE(tokens);
      const OneProduct p(format, 600, 4608, tokens);
      std::vector<float> want(size_t(tokens * p.rows)), got = on_device(device, p, 0, tokens);
      OpArgs a = p.args;
      a.out[0] = {{tokens, p.rows}, Format::f32, want.data()};
      MatMul{}.reference(a);
      double error = 0, size = 0;
      for (size_t i = 0; i < want.size(); ++i)
        error += std::pow(double(got[i]) - want[i], 2), size += double(want[i]) * want[i];
      CHECK(error / size < 1e-11);
    }
}
