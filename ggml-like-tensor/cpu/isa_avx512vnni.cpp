#include "ggml-like-tensor/cpu/lanes_avx512.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_avx512vnni;
// Only ops with dot products.
const Backend kBackend_avx512vnni =
    backend_of<Avx512Lanes<true, false>, MatMul, GatedMatMul, ExpertMatMul, GatedExpertMatMul,
               Attention, LightningIndex, SparseAttention>();
}  // namespace chaski
