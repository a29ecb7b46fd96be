#include "engine/shelf/bundled.h"

extern "C" const std::byte chaski_bundled_begin[], chaski_bundled_end[];

namespace chaski {

std::span<const std::byte> bundled_model() {
  return {chaski_bundled_begin, size_t(chaski_bundled_end - chaski_bundled_begin)};
}

}  // namespace chaski
