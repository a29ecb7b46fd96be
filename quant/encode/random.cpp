#include "quant/encode/random.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "quant/formats.h"

namespace chaski {

namespace {

// Steele et al. 2014, SplitMix.
struct SplitMix {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  float uniform() { return float(next() >> 40) * 0x1p-23f - 1; }  // [-1, 1)
};

template <class F>
float rms_of(const RowOf<F>& row, const typename F::Block& b) {
  double sum = 0;
  for (int i = 0; i < F::kBlock; ++i) sum += double(row.at(b, i)) * row.at(b, i);
  return float(std::sqrt(sum / F::kBlock));
}

// The scales enter linearly.
template <class F>
void set_size(typename F::Block& b, float rms) {
  auto set = [&](float d) {
    if constexpr (requires { F::set_scale(b, d); }) return F::set_scale(b, d);
    if constexpr (requires { b.dmin; }) b.dmin = f16_of_f32(d / 4);
    if constexpr (requires { b.m; }) b.m = f16_of_f32(-7 * d);
    if constexpr (requires { requires sizeof(b.d) == 4; })
      b.d = d;
    else if constexpr (requires { b.d; })
      b.d = f16_of_f32(d);
  };
  set(1);
  set(rms / rms_of<F>({}, b));
}

// Random codes; then the scales are set so that the values have the wanted size.
template <class F>
typename F::Block random_block(SplitMix& random, float rms) {
  typename F::Block b;
  if constexpr (F::kBlock == 1) {
    b = F::of(random.uniform() * rms * 1.7320508f);
  } else {
    auto* bytes = reinterpret_cast<unsigned char*>(&b);
    for (size_t i = 0; i < sizeof b; ++i) bytes[i] = uint8_t(random.next() >> 32);
    if constexpr (!kHasHeader<F>)
      set_size<F>(b, rms);  // otherwise the row's header carries the size
    else if constexpr (requires { F::set_scale(b, 1); })
      F::set_scale(b, 1);
  }
  return b;
}

}  // namespace

void random_row(Format f, uint64_t seed, float rms, int64_t cols, std::byte* row) {
  SplitMix random{seed};
  Formats::with(f, [&]<class F>(F) {
    if constexpr (kHasHeader<F>) {
      const auto header = F::header_of_random(rms);
      std::memcpy(row, &header, sizeof header);
    }
    for (int64_t b = 0; b < cols / F::kBlock; ++b) {
      const auto block = random_block<F>(random, rms);
      std::memcpy(row + kHeaderBytes<F> + size_t(b) * sizeof block, &block, sizeof block);
    }
  });
}

void random_strip(Format f, uint64_t seed, float rms, int64_t cols, std::byte* strip) {
  const size_t stride = row_bytes(f, cols);
  std::vector<std::byte> rows(stride * kStrip);
  for (int r = 0; r < kStrip; ++r)
    random_row(f, seed * kStrip + uint64_t(r), rms, cols, rows.data() + size_t(r) * stride);
  pack_strip(f, rows.data(), stride, kStrip, cols, strip);
}

}  // namespace chaski
