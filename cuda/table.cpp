// The table over the ops.
#include "cuda/table.h"

namespace chaski {

const CudaEntry& cuda_entry_of(const AnyOp& op) {
  static const CudaEntry kTable[] = {get_rows_entry(),     take_rows_entry(), matmul_entry(),
                                     gated_matmul_entry(), norm_entry(),      rope_entry(),
                                     kv_write_entry(),     attention_entry(), binary_entry(),
                                     unary_entry(),        soft_max_entry(),  quantize_acts_entry(),
                                     short_conv_entry()};
  static_assert(std::size(kTable) == Ops::kCount);
  return kTable[op.index()];
}

}  // namespace chaski
