// The first bytes of a file, by which its kind is told before anything is made of it.
#pragma once
#include <cstddef>
#include <string>

namespace chaski {

// At most n bytes. Throws Error(io) if the file cannot be opened or read, Error(bad_file) if it is
// a pipe or a device: those are never waited for.
std::string beginning_of(const std::string& path, size_t n);

}  // namespace chaski
