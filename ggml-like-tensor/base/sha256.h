// SHA-256 (FIPS 180-4), which identifies models on the network. About 300 MB a second. checksum.h
// is for chaski's own files.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace chaski {

class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  // The sum of everything added, as 64 lower-case hexadecimal digits. Nothing can be added after
  // that.
  std::string finish();

 private:
  void take_block(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_{};  // bytes that do not fill a block yet
  uint64_t size_ = 0;
};

}  // namespace chaski
