#include "ggml-like-tensor/base/checksum.h"

#include <xxhash.h>

#include "ggml-like-tensor/base/processor.h"

namespace chaski {

// The system's library is built for SSE2, which takes half as long again for a model's sums.
uint64_t checksum(const void* bytes, size_t size) {
#if defined(__x86_64__)
  static const bool avx2 = Processor().avx2();
  if (avx2) return checksum_avx2(bytes, size);
#endif
  return XXH3_64bits(bytes, size);
}

}  // namespace chaski
