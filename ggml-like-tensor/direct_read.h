// Reads pieces of a file past the system's cache, if the file system allows that (O_DIRECT).
#pragma once
#include <cstddef>
#include <cstdint>

namespace chaski {

constexpr uint64_t kSector = 4096;           // O_DIRECT: alignment of offsets, lengths and memory
constexpr uint64_t kReadPiece = 512 * 1024;  // bytes that a thread reads at once
constexpr int kReaders = 8;                  // threads, and reads at a time

constexpr uint64_t sector_down(uint64_t x) { return x / kSector * kSector; }
constexpr uint64_t sector_up(uint64_t x) { return (x + kSector - 1) / kSector * kSector; }

// Reads [from, to) of a file that Mapping::open_again() has opened. False if the bytes before
// `needed` are not all there: less than whole sectors are at the end of a file.
bool read_direct(int fd, uint64_t from, uint64_t to, uint64_t needed, std::byte* memory);

}  // namespace chaski
