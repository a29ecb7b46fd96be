#include "ggml-like-tensor/ops/kv_write.h"

#include <algorithm>
#include <atomic>

#include "ggml-like-tensor/ops/hadamard.h"
#include "ggml-like-tensor/ops/kv_saturation.h"

namespace chaski {

namespace {

constexpr float kLargestF8 = 448;
std::atomic<bool> saturated = false;

void note_saturation(const float* x, int n) {
  const auto fits = [](float y) { return !(std::fabs(y) > kLargestF8); };
  if (!std::all_of(x, x + n, fits)) saturated.store(true, std::memory_order_relaxed);
}

}  // namespace

bool kv_saturated() { return saturated.load(std::memory_order_relaxed); }

void PageOf<Q8>::encode(const float* x, int n, Q8::Block& b) {
  float padded[32] = {};
  std::copy(x, x + n, padded);
  Act a;
  QuantizeActs::block(padded, a);
  b.d = f16_of_f32(a.d);
  std::copy(a.q, a.q + 32, b.q);
}

// The ratios that are tried of the largest value to the scale. Codes reach from -8 to 7, so a ratio
// above 7.5 cuts off the largest values. The sum of squared errors may still be smaller.
constexpr float kLevels[] = {7.5f, 6, 6.5f, 7, 8, 8.5f, 9, 9.5f};

void PageOf<Q4_0>::encode(const float* x, int n, Q4_0::Block& b) {
  float most = 0, damage = 0;  // a value that is not finite makes the scale NaN
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i])), damage += 0 * x[i];
  most += damage;
  float least = INFINITY;
  for (const float levels : kLevels) {
    Q4_0::Block tried{f16_of_f32(most / levels), {}};
    const float d = f32_of_f16(tried.d), inverse = d != 0 ? 1 / d : 0;
    float lost = 0;
    for (int i = 0; i < 32; ++i) {
      const float value = i < n ? x[i] : 0, code = std::nearbyint(value * inverse) + 8;
      const int kept = code >= 0 && code < 15 ? int(code) : code >= 15 ? 15 : 0;
      tried.q[i % 16] |= kept << (i / 16 * 4);
      const float error = value - float(kept - 8) * d;
      lost += error * error;
    }
    if (levels == kLevels[0] || lost < least) b = tried, least = lost;
  }
}

namespace {

template <class F>
void write_floats(const KvLayout& l, std::byte* keys, std::byte* values, int slot, const float* k,
                  const float* v) {
  auto* columns = reinterpret_cast<typename F::Tile*>(keys);
  auto* row = reinterpret_cast<typename F::Block*>(values) + slot * l.v_cols();
  if constexpr (F::kFormat == Format::f8) {
    note_saturation(k, l.k_dim);
    if (!l.v_inside_k) note_saturation(v, l.v_dim);
  }
  for (int c = 0; c < l.k_dim; ++c) columns[c].rows[slot] = F::of(k[c]);
  for (int c = 0; c < l.v_dim && !l.v_inside_k; ++c) row[c] = F::of(v[c]);
}

template <class F>
void write_blocks(const KvLayout& l, std::byte* keys, std::byte* values, int slot, const float* k,
                  const float* v) {
  auto* tiles = reinterpret_cast<typename F::Tile*>(keys);
  auto* scales = reinterpret_cast<uint16_t*>(values + l.v_scales<F>(l.v_cols()));
  typename F::Block block;
  for (int b = 0; b < l.k_cols() / 32; ++b) {
    PageOf<F>::encode(k + 32 * b, std::min(32, l.k_dim - 32 * b), block);
    F::put(block, slot, tiles[b]);
  }
  for (int b = 0; b < l.v_cols() / 32 && !l.v_inside_k; ++b) {
    PageOf<F>::encode(v + 32 * b, std::min(32, l.v_dim - 32 * b), block);
    for (int i = 0; i < int(sizeof block.q); ++i)
      values[l.v_byte<F>(32 * b + i, slot)] = std::byte(block.q[i]);
    scales[l.v_scale(b, slot)] = block.d;
  }
}

}  // namespace

void KvWrite::write(const OpArgs& a, const Store& to, int head, float* room) const {
  const KvLayout& l = view(a).layout;
  const float *key = a.in[0].row(to.token) + head * kv.k_dim,
              *value = kv.v_inside_k ? nullptr : a.in[1].row(to.token) + head * kv.v_dim;
  if (rope) {
    Rope::head(key, room, k.angles(a, to.token), kv.k_dim, k.dim);
    key = room;
  }
  std::byte *keys = view(a).keys(head, to.page), *values = view(a).values(head, to.page);
  const auto own = [&](const float*& x, float* copy, int n) {
    if (x != copy) std::copy(x, x + n, copy);
    x = copy;
  };
  KvFormats::with(l.format, [&]<class F>(F) {
    if (PageOf<F>::kCentered && centered) {
      const float* centre = a.in[centre_at()].floats() + head * kv.k_dim;
      for (int c = 0; c < kv.k_dim; ++c) room[c] = key[c] - centre[c];
      key = room;
    }
    if (const int block = l.key_rotation<F>(); block > 0) {
      own(key, room, kv.k_dim);
      if (scaled) {
        const float* scales = a.in[scales_at()].floats() + head * kv.k_dim;
        for (int c = 0; c < kv.k_dim; ++c) room[c] /= scales[c];
      }
      hadamard(room, kv.k_dim, block);
    }
    if (const int block = l.value_rotation<F>(); block > 0 && !l.v_inside_k) {
      own(value, room + kv.k_dim, kv.v_dim);
      hadamard(room + kv.k_dim, kv.v_dim, block);
    }
    if constexpr (F::kFloat)
      write_floats<F>(l, keys, values, to.slot, key, value);
    else
      write_blocks<F>(l, keys, values, to.slot, key, value);
  });
}

}  // namespace chaski
