// What an op is on the device: an entry with a launcher, a check that is made when a plan is made,
// and the size of its scratch memory. Each file holds one op, or several small ones, because nvcc
// takes longer for a file than for their kernels. It ends with its entries.
#pragma once
#include <cuda_runtime.h>

#include "ggml-like-tensor/ops.h"

namespace chaski {

// What changes from pass to pass of a Batch, and the angles. All are in device memory at fixed
// addresses, because a captured graph is replayed over new contents. Kernels take this struct by
// value.
constexpr int kMostRopes = 4;  // different RopeSpecs in a graph, at most
constexpr int kMostPools = 4;  // pools of states, at most

struct DeviceBatch {
  const int32_t *tokens = nullptr, *positions = nullptr, *cells = nullptr;  // (tokens)
  // the tables of all sequences, then the stores, pool after pool
  const int32_t* tables = nullptr;
  // by pool, (tokens): the table of token t's sequence begins at tables[table_start[t]]
  const int32_t* table_start[kMostPools] = {};
  // (pools + 1): where in `tables` the stores of each pool begin, and where the last ones end
  const int32_t* store_start = nullptr;
  const int32_t* outputs = nullptr;     // (outputs)
  const float* ropes[kMostRopes] = {};  // per RopeSpec: [position][rope_dim / 2] pairs cos, sin
};

// What kernels need to address one state's keys and values as KvView's keys() and values() do: the
// sizes that these compute, and the tables of the state's pool.
struct KvState {
  std::byte* first = nullptr;  // keys of page 0, head 0
  int64_t group_bytes = 0, k_bytes = 0, v_bytes = 0;
  // as in DeviceBatch, of this state's pool
  const int32_t *tables = nullptr, *table_start = nullptr, *store_start = nullptr;
  int format = 0, heads = 0, k_dim = 0, v_dim = 0, k_cols = 0, v_cols = 0;  // format: int(Format)
  bool v_inside_k = false;                                                  // v_bytes is 0 then
  // the constants and scales of the keys (ops/kv_write.h), or null
  const float *centre = nullptr, *scales = nullptr;

  // The page that a cell of token t's sequence is in.
  __host__ __device__ int32_t page_id(int64_t t, int cell) const {
    return tables[table_start[t] + cell / kPage];
  }
  __host__ __device__ const Store* stores() const {
    return reinterpret_cast<const Store*>(tables + store_start[0]);
  }
  __host__ __device__ const Store* stores_end() const {
    return reinterpret_cast<const Store*>(tables + store_start[1]);
  }

  __host__ __device__ std::byte* streams(int32_t id, int head) const {
    return first + id / kPageGroup * group_bytes + head * kPageGroup * (k_bytes + v_bytes);
  }
  __host__ __device__ std::byte* k_tile(int32_t id, int head) const {
    return streams(id, head) + id % kPageGroup * k_bytes;
  }
  __host__ __device__ std::byte* v_rows(int32_t id, int head) const {
    return streams(id, head) + kPageGroup * k_bytes + id % kPageGroup * v_bytes;
  }
};
inline KvState kv_state(const KvView& kv, const DeviceBatch& batch) {
  const KvLayout& l = kv.layout;
  return {kv.keys(0, 0),
          int64_t(kv.group_bytes),
          int64_t(l.k_bytes()),
          int64_t(l.v_bytes()),
          batch.tables,
          batch.table_start[kv.pool],
          batch.store_start + kv.pool,
          int(l.format),
          l.heads,
          l.k_dim,
          l.v_dim,
          l.k_cols(),
          l.v_cols(),
          l.v_inside_k};
}
// The same for an op that stores keys.
inline KvState kv_state(const KvWrite& op, const OpArgs& a, const DeviceBatch& batch) {
  KvState kv = kv_state(op.view(a), batch);
  if (op.centered) kv.centre = a.in[op.centre_at()].floats();
  if (op.scaled) kv.scales = a.in[op.scales_at()].floats();
  return kv;
}
// Whether kernels can address the state.
inline bool is_addressable(const KvView& kv) {
  return kv.pool < kMostPools && kv.layout.format != Format::q4_0;
}
inline bool is_addressable(const RecurrentView& state) { return state.pool < kMostPools; }

// What a launcher gets besides the op and its operands, whose data are device pointers. args.batch
// is the host's Batch; only its numbers of tokens and outputs may be used, because the rest changes
// after capture. args.where has the states in device memory.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  DeviceBatch batch;
  int context = 0;  // positions a sequence can have, at most: bounds a grid
  int multiprocessors = 1;
  size_t shared_limit = 48 * 1024;  // dynamic shared memory of a block, at most
  // At least scratch(op, args, context, shared_limit) bytes, 256-byte aligned. All steps with this
  // op in all plans share it; they run one after another. It is zero before the first of them.
  // Counters that a kernel leaves at zero need no clearing.
  std::byte* scratch = nullptr;
};

struct CudaEntry {
  void (*launch)(const AnyOp&, const OpArgs&, const LaunchContext&) = nullptr;
  // Returns false if there is no kernel for this op over these formats, or if it needs more shared
  // memory than the device's LaunchContext::shared_limit. Shapes, formats and args.batch are set;
  // data are not.
  bool (*supports)(const AnyOp&, const OpArgs&, size_t shared_limit) = nullptr;
  size_t (*scratch)(const AnyOp&, const OpArgs&, int context, size_t shared_limit) = nullptr;
};

// The entry of an op. The file of its kernel makes it (entry.h); an op without an entry does not
// link.
template <class Op>
CudaEntry cuda_entry();

// The entry from the whole table, which is in the order of Ops.
const CudaEntry& cuda_entry_of(const AnyOp& op);

}  // namespace chaski
