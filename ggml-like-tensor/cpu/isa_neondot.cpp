#include "ggml-like-tensor/cpu/lanes_neondot.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_neondot;
const Backend kBackend_neondot = formats_of<NeonDotLanes, NeonLanes, FormatsOfBlocks>();
}  // namespace chaski
