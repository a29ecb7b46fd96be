// What the short formats of keys and values lose where some channels of the keys have large
// constants, as the biases of Qwen 2 have.
#include "ggml-like-tensor/rope_spec.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

constexpr int kWidth = 64, kValues = 32, kPositions = 510, kHeads = 4;

// Large channels of the keys that rotate with the position, where the queries are small, and the
// powers of two that balance them.
constexpr float kTurning = 60, kSmallQuery = 0.02f, kScale = 32;

// The attention of the last position, computed by the references. The keys are noise plus `bias`.
// If `turning`, channels 0 and 1 of the keys turn by a radian a position.
std::vector<float> attended(Format format, std::vector<float> bias, bool centered,
                            bool turning = false, bool scaled = false) {
  const Paged kv{1, kWidth, kValues, 0};
  const State state = kv;
  const StateLayout layout(std::span(&state, 1), format, false);
  Case c;
  make_batch(c, 1, layout);
  REQUIRE(c.batch.cells[0] == kPositions - 1);
  Batch one = c.batch;
  std::vector<float> k(kWidth), v(kValues), q(kHeads * kWidth), out(kHeads * kValues);
  std::vector<float> scales(kWidth, 1.0f);
  scales[0] = scales[1] = kScale;
  const Operand balance{{1, kWidth}, Format::f32, scales.data(), true};
  for (int p = 0; p < kPositions; ++p) {
    for (int i = 0; i < kWidth; ++i)
      k[size_t(i)] = 3 * noise(uint32_t(p * 1000 + i)) + bias[size_t(i)];
    if (turning) k[0] += kTurning * std::cos(float(p)), k[1] += kTurning * std::sin(float(p));
    for (int i = 0; i < kValues; ++i) v[size_t(i)] = noise(uint32_t(p * 777 + i + 5));
    one.cells = {p}, one.stores = {stores_of(one, 0)};
    OpArgs a;
    a.in[0] = {{1, kWidth}, Format::f32, k.data()};
    a.in[1] = {{1, kValues}, Format::f32, v.data()};
    a.in[2] = {{1, kWidth}, Format::f32, bias.data(), true};
    a.batch = &one, a.where = &c.where;
    const KvWrite write{0, kv, false, {}, {}, centered, scaled};
    if (scaled) a.in[write.scales_at()] = balance;
    write.reference(a);
  }
  for (size_t i = 0; i < q.size(); ++i)
    q[i] = (turning && i % kWidth < 2 ? kSmallQuery : 2) * noise(uint32_t(i) + 99);
  OpArgs a;
  a.in[0] = {{1, kHeads * kWidth}, Format::f32, q.data()};
  a.out[0] = {{1, kHeads * kValues}, Format::f32, out.data()};
  a.batch = &c.batch, a.where = &c.where;
  Attention op{0, kHeads, kv, 0.125f};
  if (op.scaled_keys = scaled; scaled) a.in[1] = balance;
  op.reference(a);
  return out;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, all = 0;
  for (size_t i = 0; i < want.size(); ++i)
    error += std::pow(double(got[i]) - want[i], 2), all += std::pow(double(want[i]), 2);
  return error / all;
}

}  // namespace

TEST_CASE("kv formats: constants of keys cost the short formats nothing once they are subtracted") {
  std::vector<float> bias(kWidth);
  bias[60] = 300, bias[61] = -200, bias[62] = 90, bias[63] = 150;
  const std::vector<float> want = attended(Format::f32, bias, false);
  for (const auto& [format, most] :
       {std::pair{Format::q8, 5e-4}, {Format::f8, 0.015}, {Format::q4_0, 0.08}}) {
    CAPTURE(info(format).name);
    const double with = relative_error(attended(format, bias, true), want),
                 without = relative_error(attended(format, bias, false), want);
    CAPTURE(with);
    CAPTURE(without);
    CHECK(with < most);
    CHECK(without > 20 * with);
  }
  // f16 and f32 keep keys as they are, with a centre and without.
  for (const Format format : {Format::f16, Format::f32})
    CHECK(attended(format, bias, true) == attended(format, bias, false));
}

TEST_CASE(
    "kv formats: large channels of the keys that meet small queries cost little when scaled") {
  const std::vector<float> none(kWidth), want = attended(Format::f32, none, false, true);
  for (const auto& [format, most] : {std::pair{Format::q8, 5e-4}, {Format::q4_0, 0.08}}) {
    CAPTURE(info(format).name);
    const double with = relative_error(attended(format, none, false, true, true), want),
                 without = relative_error(attended(format, none, false, true, false), want);
    CAPTURE(with);
    CAPTURE(without);
    CHECK(with < most);
    CHECK(without > 4 * with);
  }
  // Formats that do not rotate keys store them without scales.
  for (const Format format : {Format::f16, Format::f8, Format::f32})
    CHECK(attended(format, none, false, true, true) == attended(format, none, false, true, false));
}

TEST_CASE("kv formats: the mean of a rotated head is that of its rotations one by one") {
  RopeSpec rope;
  rope.dim = 8, rope.scaling = RopeScaling::yarn, rope.factor = 4, rope.original_context = 64;
  const int positions = 50;
  const std::vector<float> head{1, -2, 3, 0.5f, -1, 2, 4, 5, 6, 7};
  std::vector<float> table, mean = head;
  rope.append(table, 0, positions);
  rope.average(mean.data(), positions);
  for (int i = 0; i < rope.dim; i += 2) {
    double sum[2] = {};
    for (int p = 0; p < positions; ++p) {
      float y[2];
      Rope::pair(head[size_t(i)], head[size_t(i) + 1], table[size_t(p * rope.dim + i)],
                 table[size_t(p * rope.dim + i + 1)], y);
      sum[0] += y[0], sum[1] += y[1];
    }
    CHECK(mean[size_t(i)] == doctest::Approx(sum[0] / positions).epsilon(1e-4));
    CHECK(mean[size_t(i) + 1] == doctest::Approx(sum[1] / positions).epsilon(1e-4));
  }
  CHECK(mean[8] == 6);
  CHECK(mean[9] == 7);
}
