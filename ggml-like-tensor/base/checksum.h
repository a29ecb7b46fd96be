// The checksum in .quipu files, of the header and of each tensor: XXH3-64.
#pragma once
#include <cstddef>
#include <cstdint>

namespace chaski {

uint64_t checksum(const void* bytes, size_t size);
uint64_t checksum_avx2(const void* bytes, size_t size);  // the same; needs AVX2

}  // namespace chaski
