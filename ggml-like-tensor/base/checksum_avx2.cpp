// The same checksum from the library's header, in an object built with -mavx2 (Makefile).
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ggml-like-tensor/base/checksum.h"

namespace chaski {

uint64_t checksum_avx2(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace chaski
