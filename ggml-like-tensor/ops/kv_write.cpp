#include "ggml-like-tensor/ops/kv_write.h"

#include "quant/floats.h"
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
  auto* row = reinterpret_cast<int8_t*>(values) + slot * l.v_cols();
  auto* scales = reinterpret_cast<uint16_t*>(values + size_t(kPage) * l.v_cols()) + slot * (l.v_cols() / 32);
  for (int b = 0; b < l.v_cols() / 32; ++b) {
    const int n = std::min(32, l.head_dim - 32 * b);
    Q8::put(kv_block(k + 32 * b, n), slot, tiles[b]);
    const Q8::Block block = kv_block(v + 32 * b, n);
    std::copy(block.q, block.q + 32, row + 32 * b);
    scales[b] = block.d;
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
  std::byte* page = kv.page(a.batch->tables[t][position / kPage]);
  const auto write_head = l.format == Format::f32 ? write_f32 : l.format == Format::f16 ? write_f16 : write_q8;
  write_head(l, page + l.k_offset(layer, head), page + l.v_offset(layer, head), position % kPage, key, value);
}

}  // namespace chaski
