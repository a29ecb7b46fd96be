// Codes of 4 bits and their tiles. Formats of all sub-folders use them.
#pragma once
#include <cstring>

#include "quant/format.h"
#include "quant/panel.h"

namespace chaski {

// Codes of 32 columns in 16 bytes, as GGUF packs them: low nibbles columns 0..15, high nibbles
// 16..31.
constexpr int nibble_of(const uint8_t* q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }

inline void put_nibble(uint8_t* q, int i, int code) {
  uint8_t& both = q[i % 16];
  both = i < 16 ? uint8_t((both & 0xf0) | code) : uint8_t((both & 15) | code << 4);
}

// The same for 16 rows: byte 64j + 4r + k holds row r, columns 4j + k (low nibble) and 16 + 4j + k
// (high nibble). The 32-bit words are also the A fragments of an integer tensor-core product.
struct TileNibbles {
  uint8_t q[256];

  void put_codes(const uint8_t* row, int r) {
    for (int j = 0; j < 4; ++j) std::memcpy(q + 64 * j + 4 * r, row + 4 * j, 4);
  }
  constexpr void get_codes(int r, uint8_t* row) const {
    for (int j = 0; j < 4; ++j) __builtin_memcpy(row + 4 * j, q + 64 * j + 4 * r, 4);
  }
  // finish(g, codes) returns what the panel holds for columns 4g .. 4g + 3.
  template <class V, class Fn>
  inline __attribute__((always_inline)) void unpack_codes(Panel<V>& p, Fn finish) const {
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(q + 64 * j);
      p.w[j] = finish(j, V::low_nibbles(x));
      p.w[j + 4] = finish(j + 4, V::high_nibbles(x));
    }
  }
  template <class V>
  inline __attribute__((always_inline)) void unpack_codes(Panel<V>& p) const {
    unpack_codes(p, [](int, auto codes) { return codes; });
  }
};

// Unpacks such codes to a panel's values by a table.
template <class V>
inline __attribute__((always_inline)) void unpack_nibbles_by(const uint8_t* codebook,
                                                             const uint8_t* q, Panel<V>& p) {
  for (int j = 0; j < 4; ++j) {
    const auto x = V::load_bytes(q + 64 * j);
    p.w[j] = V::lookup_low(codebook, x);
    p.w[j + 4] = V::lookup_high(codebook, x);
  }
}

}  // namespace chaski
