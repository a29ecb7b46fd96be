// libFuzzer's entry point. A fuzz binary consists of this file and one target.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const auto& target : chaski::fuzz::targets())
    target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
