#include "ggml-like-tensor/base/hash_index.h"

#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

namespace chaski {

uint64_t hash_of(std::string_view text) {
  // Each process has its own seed, so a file cannot be made in which all texts have the same hash.
  static const uint64_t seed = [] {
    uint64_t random = 0;
    if (::getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
      random = static_cast<uint64_t>(::getpid());
    return random;
  }();
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace chaski
