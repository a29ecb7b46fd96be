#include "ggml-like-tensor/ops/kv_write.h"

#include "ggml-like-tensor/ops/hadamard.h"
#include "quant/floats.h"
#include "quant/q4_0.h"
#include "quant/q8.h"

namespace chaski {

namespace {

// 32 floats as KV pages keep them: d rounded to f16, the codes as for the activations of a matmul.
Q8::Block kv_block(const float* x, int n) {
  float padded[32] = {};
  std::copy(x, x + n, padded);
  Act a;
  QuantizeActs::block(padded, a);
  Q8::Block b;
  b.d = f16_of_f32(a.d);
  std::copy(a.q, a.q + 32, b.q);
  return b;
}

void write_f32(const KvLayout& l, std::byte* keys, std::byte* values, int slot, const float* k, const float* v) {
  for (int c = 0; c < l.head_dim; ++c) reinterpret_cast<F32::Tile*>(keys)[c].rows[slot] = k[c];
  std::copy(v, v + l.head_dim, reinterpret_cast<float*>(values) + slot * l.v_cols());
}

void write_f16(const KvLayout& l, std::byte* keys, std::byte* values, int slot, const float* k, const float* v) {
  auto* columns = reinterpret_cast<F16::Tile*>(keys);
  auto* row = reinterpret_cast<uint16_t*>(values) + slot * l.v_cols();
  for (int c = 0; c < l.head_dim; ++c) {
    columns[c].rows[slot] = f16_of_f32(k[c]);
    row[c] = f16_of_f32(v[c]);
  }
}

void write_q8(const KvLayout& l, std::byte* keys, std::byte* values, int slot, const float* k, const float* v) {
  auto* tiles = reinterpret_cast<Q8::Tile*>(keys);
  auto* scales = reinterpret_cast<uint16_t*>(values + l.v_scales());
  for (int b = 0; b < l.v_cols() / 32; ++b) {
    const int n = std::min(32, l.head_dim - 32 * b);
    Q8::put(kv_block(k + 32 * b, n), slot, tiles[b]);
    const Q8::Block block = kv_block(v + 32 * b, n);
    for (int i = 0; i < 32; ++i) values[l.v_byte(32 * b + i, slot)] = std::byte(block.q[i]);
    scales[l.v_scale(b, slot)] = block.d;
  }
}

// 16 levels over +- the largest size, which loses half a step at either end. The scale is not negative: the kernel that weighs values
// multiplies it into unsigned weights (cpu/values.h).
Q4_0::Block kv_block4(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i)
    if (!(std::fabs(x[i]) <= most)) most = std::fabs(x[i]);  // a NaN is kept, so that it shows
  Q4_0::Block b{f16_of_f32(most / 7.5f), {}};
  const float d = f32_of_f16(b.d), inverse = d != 0 ? 1 / d : 0;
  for (int i = 0; i < 32; ++i) {
    const float code = std::nearbyint((i < n ? x[i] : 0) * inverse) + 8;
    b.q[i % 16] |= (code >= 0 && code < 15 ? int(code) : code >= 15 ? 15 : 0) << (i / 16 * 4);
  }
  return b;
}

void write_q4(const KvLayout& l, std::byte* keys, std::byte* values, int slot, const float* k, const float* v) {
  float rotated[kMaxHeadDim];
  std::copy(k, k + l.head_dim, rotated);
  hadamard(rotated, l.head_dim);
  auto* tiles = reinterpret_cast<Q4_0::Tile*>(keys);
  auto* scales = reinterpret_cast<uint16_t*>(values + l.v_scales());
  for (int b = 0; b < l.v_cols() / 32; ++b) {
    const int n = std::min(32, l.head_dim - 32 * b);
    Q4_0::put(kv_block4(rotated + 32 * b, n), slot, tiles[b]);
    const Q4_0::Block block = kv_block4(v + 32 * b, n);
    for (int i = 0; i < 16; ++i) values[l.v_byte(32 * b + i, slot)] = std::byte(block.q[i]);
    scales[l.v_scale(b, slot)] = block.d;
  }
}

}  // namespace

void KvWrite::write(const OpArgs& a, int64_t t, int head) const {
  const KvView& kv = a.batch->kv;
  const KvLayout& l = kv.layout;
  const int position = a.batch->positions[t];
  const float *key = a.in[0].row(t) + head * l.head_dim, *value = a.in[1].row(t) + head * l.head_dim;
  float rotated[kMaxHeadDim];
  if (rope) {
    Rope::head(key, rotated, k.angles(*a.batch, t), l.head_dim, k.dim);
    key = rotated;
  }
  const int32_t page = a.batch->tables[t][position / kPage];
  const auto write_head = l.format == Format::f32   ? write_f32
                          : l.format == Format::f16 ? write_f16
                          : l.format == Format::q8  ? write_q8
                                                    : write_q4;
  write_head(l, kv.keys(layer, head, page), kv.values(layer, head, page), position % kPage, key, value);
}

}  // namespace chaski
