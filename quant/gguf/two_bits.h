// Codes of 2 bits as GGUF's Q2_K and Q3_K keep them: 256 columns in 64 bytes. Each half of 128
// columns has 32 bytes. Column i of a half is bit pair i / 32 of byte i % 32.
#pragma once
#include "quant/format.h"
#include "quant/panel.h"

namespace chaski {

constexpr int two_bits_of(const uint8_t* q, int i) {
  return q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
}

// The same for 16 rows, by sub-blocks of 32 columns: pair j of byte 4r + k of q[s][h] is row r,
// column 32s + 16h + 4j + k.
struct TileTwoBits {
  uint8_t q[8][2][64];

  void put_codes(const uint8_t* row, int r) {
    for (int s = 0; s < 8; ++s)
      for (int h = 0; h < 2; ++h)
        for (int k = 0; k < 4; ++k) {
          int pairs = 0;
          for (int j = 0; j < 4; ++j)
            pairs |= two_bits_of(row, 32 * s + 16 * h + 4 * j + k) << 2 * j;
          q[s][h][4 * r + k] = uint8_t(pairs);
        }
  }
  constexpr void get_codes(int r, uint8_t* row) const {
    for (int i = 0; i < 64; ++i) row[i] = 0;
    for (int i = 0; i < 256; ++i) {
      const int pair = q[i / 32][i / 16 % 2][4 * r + i % 4] >> 2 * (i / 4 % 4) & 3;
      row[32 * (i / 128) + i % 32] |= uint8_t(pair << 2 * (i % 128 / 32));
    }
  }
  // finish(g, codes) returns what the panel holds for columns 4g .. 4g + 3.
  template <class V, class Fn>
  inline __attribute__((always_inline)) void unpack_codes(int sub, Panel<V>& p, Fn finish) const {
    for (int h = 0; h < 2; ++h) {
      const auto pairs = V::load_bytes(q[sub][h]);
      for (int j = 0; j < 4; ++j)
        p.w[4 * h + j] = finish(4 * h + j, V::move_bits(pairs, 2 * j, 0, 3));
    }
  }
  template <class V>
  inline __attribute__((always_inline)) void unpack_codes(int sub, Panel<V>& p) const {
    unpack_codes(sub, p, [](int, auto codes) { return codes; });
  }
};

}  // namespace chaski
