#include "ggml-like-tensor/cpu/lanes_avxvnni.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
namespace {

struct Vpdpbusd {
  static __m256i add(__m256i sum, __m256i u, __m256i s) {
    return _mm256_dpbusd_avx_epi32(sum, u, s);
  }
};

}  // namespace

extern const Backend kBackend_avxvnni;
const Backend kBackend_avxvnni = formats_of<AvxVnniLanes<Vpdpbusd>, Avx2Lanes, FormatsOfBlocks>();
}  // namespace chaski
