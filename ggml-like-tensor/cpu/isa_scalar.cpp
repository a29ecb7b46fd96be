#include "ggml-like-tensor/cpu/lanes_scalar.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_scalar;
const Backend kBackend_scalar = backend_of<ScalarLanes>();
}  // namespace chaski
