#include "ggml-like-tensor/cpu/lanes_avx2.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_avx2;
const Backend kBackend_avx2 = backend_of<Avx2Lanes>();
}  // namespace chaski
