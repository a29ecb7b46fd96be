// Matrix tiles, with the instructions of AMX in plain code: few machines that run these tests have
// them. Compiled with AVX2's flags (Makefile).
#include "tests/kit/doctest.h"

#ifdef __AVX2__
#include "ggml-like-tensor/cpu/lanes_avx2.h"
#include "ggml-like-tensor/cpu/tiles.h"
#include "tests/lanes/random_strips.h"

using namespace chaski;

namespace {

// Intel's manual, volume 2, LDTILECFG, TILELOADD, TDPBSSD and TILESTORED. Tiles that are read
// before they are loaded, or beyond their size, hold a number that spoils the result.
struct PlainTile {
  int rows, columns;  // columns in bytes
  int8_t bytes[16][64];
};
struct PlainTiles {
  static inline PlainTile tiles[8];
  static inline int released = 0;

  static void configure(int columns) {
    for (int t = 0; t < 8; ++t) {
      std::memset(tiles[t].bytes, 77, sizeof tiles[t].bytes);
      tiles[t].rows = t < 6 ? 16 : columns / 4;
      tiles[t].columns = t == 4 || t == 5 ? columns : 64;
    }
  }
  static void release() { ++released; }
  template <int t>
  static void zero() {
    std::memset(tiles[t].bytes, 0, sizeof tiles[t].bytes);
  }
  template <int t>
  static void load(const std::byte* from, int64_t stride) {
    for (int r = 0; r < tiles[t].rows; ++r)
      std::memcpy(tiles[t].bytes[r], from + r * stride, size_t(tiles[t].columns));
  }
  template <int t>
  static void store(std::byte* to) {
    for (int r = 0; r < tiles[t].rows; ++r) std::memcpy(to + 64 * r, tiles[t].bytes[r], 64);
  }
  template <int dots, int acts, int panel>
  static void multiply() {
    for (int r = 0; r < tiles[dots].rows; ++r)
      for (int lane = 0; lane < 16; ++lane) {
        int32_t sum;
        std::memcpy(&sum, tiles[dots].bytes[r] + 4 * lane, 4);
        for (int c = 0; c < tiles[acts].columns; ++c)
          sum += tiles[acts].bytes[r][c] * tiles[panel].bytes[c / 4][4 * lane + c % 4];
        std::memcpy(tiles[dots].bytes[r] + 4 * lane, &sum, 4);
      }
  }
};

// The groups have `widths` tokens. All sums begin at another number than 0.
template <class F>
void check_tiles(Bytes& bytes, uint8_t mask, const std::vector<int>& widths, int n_strips) {
  constexpr int kBlocks = 24, kTiles = kBlocks * 32 / F::kBlock;
  constexpr size_t kBytes = kStrip * kHeaderBytes<F> + kTiles * sizeof(typename F::Tile);
  std::vector<std::byte> strips(size_t(n_strips) * kBytes + kPrefetch);
  bytes.fill(strips.data(), strips.size(), mask);
  std::vector<Act> acts(kGroup * kBlocks * widths.size() + kPastActs / sizeof(Act));
  for (Act& a : acts) bytes.fill(a);
  std::vector<GroupInput> groups;
  for (size_t g = 0; g < widths.size(); ++g)
    groups.push_back(
        {{acts.data() + g * kGroup * kBlocks, widths[g], nullptr, 0, kBlocks * 32}, widths[g]});
  constexpr int kSums = kGroupsAtOnce * kGroup * 16;
  std::vector<float> expected(size_t(n_strips * kSums), .5f), found = expected;
  const int ends[] = {0, 9, 19, kBlocks};
  for (int i = 0; i < 3; ++i) {
    strips_times<Avx2Lanes, F>(strips.data(), kBytes, n_strips, ends[i], ends[i + 1], groups.data(),
                               int(groups.size()), expected.data());
    tiles_times<Avx2Lanes, PlainTiles, F>(strips.data(), kBytes, n_strips, ends[i], ends[i + 1],
                                          groups.data(), int(groups.size()), found.data());
  }
  for (int s = 0; s < n_strips; ++s)
    for (size_t g = 0; g < widths.size(); ++g) {
      CAPTURE(s);
      CAPTURE(g);
      const size_t at = size_t(s * kSums) + g * kGroup * 16;
      CHECK(std::memcmp(&expected[at], &found[at], size_t(widths[g]) * 16 * sizeof(float)) == 0);
    }
}

}  // namespace

TEST_CASE("op: tiles have the bits of strips, with AMX in plain code") {
  if (without_avx2()) return;
  Bytes bytes;
  PlainTiles::released = 0;
  int calls = 0;
  Formats::each([&]<class F>(F) {
    if constexpr (!F::kFloat && std::is_same_v<TilesOf<F>, F>) {
      INFO(F::kName);
      check_tiles<F>(bytes, 0xbf, {16, 16, 16, 7}, 3);
      check_tiles<F>(bytes, 0xfb, {16, 9}, 1);
      calls += 6;
    }
  });
  CHECK(PlainTiles::released == calls);
}

#endif
