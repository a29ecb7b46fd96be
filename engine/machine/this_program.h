// The identity of this build of chaski. Data in the cache that another build wrote may differ from
// what this one would write, so it is keyed by this.
#pragma once
#include <cstdint>

namespace chaski {

// XXH3-64 of the program's file, computed once. Throws Error(io).
uint64_t program_checksum();

}  // namespace chaski
