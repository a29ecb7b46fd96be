#include "engine/machine/this_program.h"

#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/mapping.h"

namespace chaski {

uint64_t program_checksum() {
  static const uint64_t sum = [] {
    const auto program = Mapping::open("/proc/self/exe");
    return checksum(program->bytes().data(), program->bytes().size());
  }();
  return sum;
}

}  // namespace chaski
