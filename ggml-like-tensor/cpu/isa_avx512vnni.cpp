#include "ggml-like-tensor/cpu/lanes_avx512.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_avx512vnni;
const Backend kBackend_avx512vnni =
    formats_of<Avx512Lanes<true, false>, Avx512Lanes<false, false>, FormatsOfBlocks>();
}  // namespace chaski
