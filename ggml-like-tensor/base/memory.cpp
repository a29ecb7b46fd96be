#include "ggml-like-tensor/base/memory.h"

#include <fstream>
#include <string>

namespace chaski {

std::optional<uint64_t> available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;)
    if (uint64_t kib; word == "MemAvailable:" && meminfo >> kib) return kib * 1024;
  return std::nullopt;
}

}  // namespace chaski
