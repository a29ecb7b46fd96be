#include "ggml-like-tensor/cpu/lanes_amx.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
extern const Backend kBackend_amx;
const Backend kBackend_amx = tiles_of<AmxLanes, AmxTiles, Avx512Lanes<false, false>>();
}  // namespace chaski
