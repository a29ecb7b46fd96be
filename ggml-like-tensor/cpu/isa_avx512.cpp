#include "ggml-like-tensor/cpu/lanes_avx512.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_avx512;
const Backend kBackend_avx512 = backend_of<Avx512Lanes<false, false>>();
}  // namespace chaski
