// The table of all ops on the device.
#include "cuda/table.h"

namespace chaski {

namespace {

template <class... Op>
std::array<CudaEntry, sizeof...(Op)> entries(OpList<Op...>) {
  return {cuda_entry<Op>()...};
}

}  // namespace

const CudaEntry& cuda_entry_of(const AnyOp& op) {
  static const auto kTable = entries(Ops{});
  return kTable[op.index()];
}

}  // namespace chaski
