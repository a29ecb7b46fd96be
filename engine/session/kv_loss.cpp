#include "engine/session/kv_loss.h"

#include "ggml-like-tensor/ops/kv_saturation.h"

namespace chaski {

// chaski eval -m M --kl M --kv FORMAT --base-kv f16 -f wiki.test.raw --chunks 2
std::string kv_loss(Format format) {
  switch (format) {
    case Format::f8:
      return ".0035 to .0080";
    case Format::q8:
      return ".0001 to .0004";
    case Format::q4_0:
      return ".011 to .045";
    default:
      return "";
  }
}

std::string kv_saturation() {
  return !kv_saturated() ? ""
                         : "--kv f8: the model has keys or values above 448, the largest number of "
                           "f8, which were stored as 448; --kv q8 has no such limit";
}

}  // namespace chaski
