#include "ggml-like-tensor/cpu/lanes_neon.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_neon;
const Backend kBackend_neon = backend_of<NeonLanes>();
}  // namespace chaski
