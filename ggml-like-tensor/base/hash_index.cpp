#include "ggml-like-tensor/base/hash_index.h"

#include <xxhash.h>

namespace chaski {

uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace chaski
