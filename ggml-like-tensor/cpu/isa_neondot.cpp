#include "ggml-like-tensor/cpu/lanes_neondot.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_neondot;
// Only ops with dot products.
const Backend kBackend_neondot =
    backend_of<NeonDotLanes, MatMul, GatedMatMul, HeadMatMul, ExpertMatMul, GatedExpertMatMul,
               Attention, LightningIndex, SparseAttention>();
}  // namespace chaski
