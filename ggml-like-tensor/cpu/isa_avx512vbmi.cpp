#include "ggml-like-tensor/cpu/lanes_avx512.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_avx512vbmi;
// Only ops whose dot products use weights from a codebook.
const Backend kBackend_avx512vbmi =
    backend_of<Avx512Lanes<true, true>, MatMul, GatedMatMul, ExpertMatMul, GatedExpertMatMul>();
}  // namespace chaski
