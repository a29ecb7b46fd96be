// Rows of a table by token or position. A thread takes 32 columns of a row of a block format (so
// that a block is unpacked by few), one column of a float format; values are those of the format's
// definition, to the bit.
#include "cuda/launch.cuh"
#include "cuda/table.h"
#include "quant/formats.h"

namespace chaski {
namespace {

template <class F>
__global__ void get_rows(const std::byte* table, int64_t strip_bytes, int64_t cols,
                         const int32_t* ids, float* out) {
  wait_for_previous();
  start_next();
  constexpr int kColumns = F::kFloat ? 1 : 32;  // of a thread
  const int64_t first = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * kColumns;
  if (first >= cols) return;
  const int32_t id = ids[blockIdx.x];
  const StripOf<F> strip(table + id / kStrip * strip_bytes);
  const int r = id % kStrip;
  const auto block = F::get(strip.tiles()[first / F::kBlock], r);
  float* y = out + int64_t(blockIdx.x) * cols + first;
  for (int i = 0; i < kColumns; ++i) y[i] = strip.row(r).at(block, int(first % F::kBlock) + i);
}

struct GetRowsKernel {
  static bool supports(const GetRows&, const OpArgs& a) { return a.in[0].shape.rows > 1; }
  static void launch(const GetRows& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t cols = a.in[0].shape.cols;
    const int32_t* ids = op.by == GetRows::By::token ? c.batch.tokens : c.batch.positions;
    Formats::with(a.in[0].format, [&]<class F>(F) {
      const int64_t threads = F::kFloat ? cols : cols / 32;
      constexpr int kThreads = F::kFloat ? 256 : 32;
      chaski::launch(
          "get_rows",
          {dim3(unsigned(a.out[0].shape.rows), unsigned((threads + kThreads - 1) / kThreads)),
           kThreads, c.stream},
          get_rows<F>, a.in[0].bytes(), int64_t(strip_bytes(F::kFormat, cols)), cols, ids,
          a.out[0].out_row(0));
    });
  }
};

}  // namespace

CudaEntry get_rows_entry() { return cuda_entry<GetRows, GetRowsKernel>(); }

}  // namespace chaski
