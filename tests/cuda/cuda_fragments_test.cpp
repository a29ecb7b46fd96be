// The positions of matrix fragments: those of the PTX manual (fragments.cu), on a GPU and in the
// shim. All other kernels rely on them (cuda/device/mma.cuh).
#include "tests/cuda/fragments.h"
#include "tests/kit/cuda_device.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

TEST_CASE("cuda: fragments of matrix products are where the PTX manual says") {
  Device device;
  if (!device.available()) return;
  for (const Product p : {Product::s8, Product::f16, Product::bf16}) {
    CAPTURE(int(p));
    const int columns = columns_of(p);
    std::vector<int8_t> a(size_t(16 * columns)), b(size_t(columns * 8));
    for (size_t i = 0; i < a.size(); ++i) a[i] = int8_t(40 * noise(uint32_t(i)));
    for (size_t i = 0; i < b.size(); ++i) b[i] = int8_t(40 * noise(uint32_t(i + 1000)));
    auto* out = static_cast<int*>(device.poisoned(128 * sizeof(int)));
    multiply_by_ptx(p, device.upload(a), device.upload(b), out, device.context().stream);
    int got[128];
    device.download(out, got, sizeof got);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        int want = 0;
        for (int k = 0; k < columns; ++k)
          want += a[size_t(row * columns + k)] * b[size_t(k * 8 + column)];
        CHECK(got[row * 8 + column] == want);
      }
  }
}

TEST_CASE("cuda: ldmatrix loads what the PTX manual says") {
  Device device;
  if (!device.available()) return;
  std::vector<uint16_t> matrices(256);
  for (size_t i = 0; i < matrices.size(); ++i) matrices[i] = uint16_t(i * 7 + 1);
  for (const bool transposed : {false, true}) {
    auto* out = static_cast<uint32_t*>(device.poisoned(128 * sizeof(uint32_t)));
    load_by_ptx(transposed, device.upload(matrices), out, device.context().stream);
    uint32_t got[128];
    device.download(out, got, sizeof got);
    for (size_t lane = 0; lane < 32; ++lane)
      for (size_t i = 0; i < 4; ++i) {
        const size_t line = lane / 4, pair = lane % 4 * 2;
        const auto at = [&](size_t row, size_t column) {
          return uint32_t(matrices[64 * i + 8 * row + column]);
        };
        const uint32_t want = transposed ? at(pair, line) | at(pair + 1, line) << 16
                                         : at(line, pair) | at(line, pair + 1) << 16;
        CHECK(got[4 * lane + i] == want);
      }
  }
}
