// Which instruction sets a processor has, and the Lanes of AVX-VNNI, with vpdpbusd in plain code:
// few machines that run these tests have the instruction. Compiled with AVX2's flags (Makefile).
#include "tests/kit/doctest.h"

#ifdef __AVX2__
#include "ggml-like-tensor/cpu/lanes_avxvnni.h"
#include "tests/lanes/random_strips.h"

using namespace chaski;

namespace {

// Intel's manual, volume 2, VPDPBUSD.
struct PlainDot {
  static __m256i add(__m256i sum, __m256i u, __m256i s) {
    alignas(32) int32_t sums[8];
    alignas(32) uint8_t us[32];
    alignas(32) int8_t ss[32];
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums), sum);
    _mm256_store_si256(reinterpret_cast<__m256i*>(us), u);
    _mm256_store_si256(reinterpret_cast<__m256i*>(ss), s);
    for (int i = 0; i < 32; ++i) sums[i / 4] += us[i] * ss[i];
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(sums));
  }
};
using V = AvxVnniLanes<PlainDot>;

// A block's rows times 1 to N activations are those of panel.h.
template <class F, int N>
void check_format(Bytes& bytes, const Act* acts) {
  alignas(64) std::byte strip[kStrip * kHeaderBytes<F> + sizeof(typename F::Tile)] = {};
  const StripOf<F> s(strip);
  bytes.fill(strip, kStrip * kHeaderBytes<F>);
  typename F::Block blocks[kStrip];
  bytes.fill(blocks, sizeof blocks);
  for (int r = 0; r < kStrip; ++r) F::put(blocks[r], r, const_cast<typename F::Tile&>(*s.tiles()));
  for (int sub = 0; sub < F::kBlock / 32; ++sub) {
    Panel<V> panel;
    s.template unpack<V>(0, sub, panel);
    V::F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = V::set1(.5f);
    block_dots<V, F::kDot, N>(panel, acts, sums);
    for (int n = 0; n < N; ++n) {
      float found[16];
      V::store(found, sums[n]);
      for (int r = 0; r < kStrip; ++r) {
        RowPanel row;
        s.row(r).panel(blocks[r], sub, row);
        CHECK(found[r] == dot_block(F::kDot, row, acts[n], .5f));
      }
    }
  }
}

// The ranges begin and end inside tiles. Their sums have the bits of the whole strip, and each
// token has the bits that it has alone.
template <class F>
void check_ranges(Bytes& bytes) {
  constexpr int kBlocks = 40, kTokens = 9, kTiles = kBlocks * 32 / F::kBlock;
  std::vector<std::byte> strip(kStrip * kHeaderBytes<F> + kTiles * sizeof(typename F::Tile));
  bytes.fill(strip.data(), strip.size());
  std::vector<Act> acts(kBlocks * kTokens);
  for (Act& a : acts) bytes.fill(a);
  const StripInput in{acts.data(), kTokens, nullptr, 0, 0};
  V::F whole[kTokens], parts[kTokens], alone;
  for (int n = 0; n < kTokens; ++n) whole[n] = parts[n] = V::zero();
  strip_times<V, F>(strip.data(), 0, kBlocks, in, kTokens, whole);
  const int ends[] = {0, 3, 29, kBlocks};
  for (int i = 0; i < 3; ++i)
    strip_times<V, F>(strip.data(), ends[i], ends[i + 1], in, kTokens, parts);
  CHECK(std::memcmp(whole, parts, sizeof whole) == 0);
  for (int n = 0; n < kTokens; ++n) {
    StripInput one = in;
    one.acts += n;
    alone = V::zero();
    for (int i = 0; i < 3; ++i)
      strip_times<V, F>(strip.data(), ends[i], ends[i + 1], one, 1, &alone);
    CHECK(std::memcmp(&alone, whole + n, sizeof alone) == 0);
  }
}

}  // namespace

TEST_CASE("op: the lanes of AVX-VNNI multiply as panel.h defines it, with vpdpbusd in plain code") {
  if (without_avx2()) return;
  Bytes bytes;
  Act acts[4];
  for (Act& a : acts) bytes.fill(a);
  Formats::each([&]<class F>(F) {
    if constexpr (!F::kFloat && std::is_same_v<TilesOf<F>, F>) {
      INFO(F::kName);
      check_format<F, 1>(bytes, acts);
      check_format<F, 4>(bytes, acts);
    }
  });
}

TEST_CASE("op: ranges of blocks that end inside tiles have the bits of a whole strip") {
  if (without_avx2()) return;
  Bytes bytes;
  check_ranges<Q4_0>(bytes);
  check_ranges<Q4>(bytes);
  check_ranges<Q5_K>(bytes);
  check_ranges<Q6_K>(bytes);
}

TEST_CASE("op: four weights of attention's values by AVX-VNNI") {
  if (without_avx2()) return;
  Bytes bytes;
  alignas(64) uint8_t codes[64], weights[4];
  for (uint8_t& c : codes) c = bytes.next();
  for (uint8_t& w : weights) w = bytes.next() & 127;
  int32_t sums[16];
  V::store_i32(sums, V::dot_four(V::set1_i32(-7), V::load_bytes(codes), weights));
  for (int r = 0; r < 16; ++r) {
    int32_t sum = -7;
    for (int k = 0; k < 4; ++k) sum += int8_t(codes[4 * r + k]) * weights[k];
    CHECK(sums[r] == sum);
  }
}

TEST_CASE("op: the instruction sets of processors") {
  constexpr unsigned kFma = 1u << 12, kAvx = 1u << 28, kF16c = 1u << 29, kAvx2 = 1u << 5;
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  Processor::Words zen3{.one_c = kFma | kAvx | kF16c, .seven_b = kAvx2, .saved = 0x7};
  CHECK(Processor(zen3).runs("avx2"));
  CHECK(!Processor(zen3).runs("avxvnni"));
  CHECK(Processor(zen3).better_than("scalar") == "avx2");
  CHECK(Processor(zen3).better_than("avx2") == "");

  Processor::Words alder_lake = zen3;
  alder_lake.seven_one_a = 1u << 4;
  CHECK(Processor(alder_lake).runs("avxvnni"));
  CHECK(!Processor(alder_lake).runs("avx512"));
  CHECK(Processor(alder_lake).better_than("avx2") == "avxvnni");

  Processor::Words zen4 = zen3;  // no AVX-VNNI
  zen4.seven_b |= kAvx512, zen4.seven_c = 1u << 11 | 1u << 1, zen4.saved = 0xe7;
  CHECK(!Processor(zen4).runs("avxvnni"));
  CHECK(Processor(zen4).runs("avx512vbmi"));
  CHECK(Processor(zen4).better_than("avx2") == "avx512vbmi");
  CHECK(!Processor(zen4).zen4());  // the same instructions on an Intel processor
  zen4.vendor = 0x68747541;        // AuthenticAMD
  CHECK(Processor(zen4).zen4());
  CHECK(!Processor(zen3).zen4());

  Processor::Words cannon_lake = zen4;  // the kernels of VBMI also use VNNI
  cannon_lake.seven_c = 1u << 1;
  CHECK(!Processor(cannon_lake).runs("avx512vbmi"));
  CHECK(Processor(cannon_lake).better_than("avx2") == "avx512");

  Processor::Words sapphire_rapids = zen4;
  sapphire_rapids.seven_d = 1u << 22 | 1u << 24 | 1u << 25;
  CHECK(!Processor(sapphire_rapids).runs("amx"));  // the system does not save tiles
  sapphire_rapids.saved |= 1u << 17 | 1u << 18;
  CHECK(Processor(sapphire_rapids).runs("amx"));
  CHECK(Processor(sapphire_rapids).better_than("avx512vbmi") == "amx");
  sapphire_rapids.seven_d = 1u << 22 | 1u << 24;  // tiles of bf16 alone
  CHECK(!Processor(sapphire_rapids).runs("amx"));

  zen4.saved = 0x7;  // the system does not save the registers of AVX-512
  CHECK(Processor(zen4).better_than("avx2") == "");
}

#endif
