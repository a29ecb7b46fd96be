// Cases for the op sweeps (op_test.cpp, cuda_test.cpp): inputs, a batch and pages for every
// Example, guarded and poisoned outputs, and the error of the results.
#pragma once
#include <algorithm>
#include <cstring>

#include "ggml-like-tensor/file/model_source.h"
#include "ggml-like-tensor/ops.h"
#include "ggml-like-tensor/reading.h"
#include "quant/encode/random.h"
#include "tests/kit/support.h"

namespace chaski::test {

constexpr size_t kGuard = 64;

// Bytes between guards, 64-byte aligned; initially NaN.
struct Buffer {
  std::vector<std::byte> bytes;
  size_t size = 0;
  // filled with NaN
  explicit Buffer(size_t n = 0) : bytes(n + 2 * kGuard + 64, std::byte{0xAB}), size(n) {
    std::memset(data(), 0xFF, n);
  }
  std::byte* data() {
    auto at = reinterpret_cast<uintptr_t>(bytes.data()) + kGuard;
    return reinterpret_cast<std::byte*>((at + 63) / 64 * 64);
  }
  float* floats() { return reinterpret_cast<float*>(data()); }
  bool guarded() {
    for (size_t i = 0; i < kGuard; ++i)
      if (data()[-1 - long(i)] != std::byte{0xAB} && data() - 1 - i >= bytes.data()) return false;
    for (std::byte* p = data() + size; p < bytes.data() + bytes.size(); ++p)
      if (*p != std::byte{0xAB}) return false;
    return true;
  }
};

inline uint32_t hash(uint32_t x) {
  return x = (x ^ x >> 16) * 0x45d9f3b, x = (x ^ x >> 16) * 0x45d9f3b, x ^ x >> 16;
}
inline float noise(uint32_t i) { return float(hash(i) >> 8) / float(1 << 23) - 1; }

// One case: inputs, a batch, and outputs to be computed.
struct Case {
  std::vector<Buffer> in;
  std::vector<Act> in_acts;
  OpArgs args;
  Batch batch;
  PassContext where;
  std::vector<int32_t> table, other_table;
  std::vector<float> rope;
  std::vector<std::byte> pages;
};

// Stores every token where its sequence looks for it.
inline std::vector<Store> stores_of(const Batch& b, size_t pool) {
  std::vector<Store> stores;
  for (size_t t = 0; t < b.cells.size(); ++t)
    stores.push_back({int32_t(t), b.tables[pool][size_t(b.sequences[t])][b.cells[t] / kPage],
                      b.cells[t] % kPage});
  return stores;
}

// Makes a batch of two sequences whose cells cover several pages and chunks of 256.
inline void make_batch(Case& c, int64_t tokens, const StateLayout& states) {
  for (int64_t t = 0; t < tokens; ++t) {
    const bool second = t >= tokens / 2 + 1;
    c.batch.tokens.push_back(int32_t((7 * t + 3) % 37));
    c.batch.cells.push_back(int32_t((second ? 5 : 509) + t) % (states.pools.empty() ? 64 : 4096));
    c.batch.positions.push_back(c.batch.cells.back() + (states.pools.empty() ? 0 : 7));
    c.batch.sequences.push_back(second);
    if (t % 2) c.batch.outputs.push_back(int32_t(t));
  }
  if (c.batch.outputs.empty()) c.batch.outputs.push_back(0);
  for (int i = 0; i < 40; ++i) c.table.push_back(39 - i), c.other_table.push_back(40 + i);
  c.batch.tables.assign(states.pools.size(), {c.table.data(), c.other_table.data()});
  c.where.states = states;
  c.pages.resize(80 * states.page_bytes());
  c.where.states.place({{c.pages.data()}});  // examples have one pool
  c.batch.stores.resize(states.pools.size());
  if (!states.pools.empty() && !states.pools[0].recurrent) {
    std::vector<Store>& stores = c.batch.stores[0] = stores_of(c.batch, 0);
    if (tokens > 2) {  // one token is stored already, others have a second copy
      stores.erase(stores.begin() + 2);
      stores.insert(stores.end(), {{1, c.table[39], 3}, {0, c.other_table[39], 0}});
    }
  }
  plan_readings(c.batch, states.pools);
  for (int i = 0; i < 600 * 16; ++i) c.rope.push_back(noise(uint32_t(i)));
  c.where.ropes = {c.rope.data()};
}

// Fills every position with random keys and values, through the op that writes them.
inline void fill_pages(Case& c) {
  for (const RecurrentView& s : c.where.states.recurrent)
    for (int32_t page = 0; s.bytes > 0 && page < 80; ++page)
      for (size_t i = 0; i < s.bytes / 4; ++i)
        reinterpret_cast<float*>(s.block(page))[i] = noise(uint32_t(page) * 131 + uint32_t(i));
  Batch one = c.batch;
  for (StateId state = 0; state < StateId(c.where.states.paged.size()); ++state) {
    const KvLayout& l = c.where.states.paged[size_t(state)].layout;
    if (l.heads == 0) continue;
    std::vector<float> k(size_t(l.heads * l.k_dim)), v(size_t(l.heads * l.v_dim));
    for (int32_t sequence : {0, 1})
      for (int p = 0; p < 600; ++p) {
        for (size_t i = 0; i < k.size(); ++i) k[i] = noise(uint32_t(p * 1000) + uint32_t(i));
        for (size_t i = 0; i < v.size(); ++i) v[i] = noise(uint32_t(p * 777) + uint32_t(i) + 5);
        one.cells = {p}, one.sequences = {sequence}, one.stores = {stores_of(one, 0)};
        OpArgs a;
        a.in[0] = {{1, int64_t(k.size())}, Format::f32, k.data()};
        a.in[1] = {{1, int64_t(v.size())}, Format::f32, v.data()};
        a.batch = &one, a.where = &c.where;
        KvWrite{state, {l.heads, l.k_dim, l.v_dim, 0, l.v_inside_k}, false, {}, {}}.reference(a);
      }
  }
}

// A weight in tile layout with random rows.
inline Buffer random_weight(Format format, Shape shape) {
  Buffer b(TensorInfo{"", format, shape.rows, shape.cols}.bytes());
  std::vector<std::byte> row(row_bytes(format, shape.cols) * 16);
  for (int64_t s = 0; s < (shape.rows + 15) / 16; ++s) {
    const int n = int(std::min<int64_t>(16, shape.rows - 16 * s));
    for (int r = 0; r < n; ++r)
      random_row(format, uint64_t(100 * s + r + 1), 0.1f, shape.cols,
                 row.data() + size_t(r) * row_bytes(format, shape.cols));
    pack_strip(format, row.data(), row_bytes(format, shape.cols), n, shape.cols,
               b.data() + size_t(s) * strip_bytes(format, shape.cols));
  }
  return b;
}

inline void quantize_input(OpArgs& a, std::vector<Act>& acts) {
  acts.resize(size_t(a.in[0].shape.rows * a.in[0].shape.cols / 32) + kPastActs / sizeof(Act));
  a.in_acts = {acts.data(), a.in[0].shape.rows, a.in[0].shape.cols / 32};
  for (int64_t r = 0; r < a.in[0].shape.rows; ++r) QuantizeActs::row(a.in[0].row(r), a.in_acts, r);
}

template <class Op>
std::unique_ptr<Case> make_case(const Example<Op>& e, const StateLayout& states) {
  auto c = std::make_unique<Case>();
  make_batch(*c, e.tokens, states);
  fill_pages(*c);
  if constexpr (requires(float* state) { e.op.settle(state); })
    for (const RecurrentView& s : c->where.states.recurrent)
      for (int32_t page = 0; s.bytes > 0 && page < 80; ++page)
        e.op.settle(reinterpret_cast<float*>(s.block(page)));
  bool acts = false;
  for (const Input& i : e.in) {
    const bool tiled = i.weight && i.shape.rows > 1;
    if (tiled) {
      c->in.push_back(random_weight(i.format, i.shape));
      acts |= reads_acts(i.format);
      continue;
    }
    Buffer b(size_t(i.shape.rows * i.shape.cols) * 4);
    for (int64_t k = 0; k < i.shape.rows * i.shape.cols; ++k)
      if (i.below > 0)
        reinterpret_cast<int32_t*>(b.data())[k] = int32_t(hash(uint32_t(k)) % uint32_t(i.below));
      else
        b.floats()[k] = i.centre + i.spread * noise(uint32_t(k + 17 * int64_t(c->in.size())));
    c->in.push_back(std::move(b));
  }
  OpArgs& a = c->args;
  a.n_in = int(e.in.size());
  for (size_t i = 0; i < e.in.size(); ++i)
    a.in[i] = {e.in[i].shape, e.in[i].format, c->in[i].data(), e.in[i].weight};
  if (acts && kCanReadActs<Op>) quantize_input(a, c->in_acts);
  a.batch = &c->batch, a.where = &c->where;
  return c;
}

struct Outputs {
  std::vector<Buffer> floats;
  Buffer acts;
  int64_t act_rows = 0;  // of acts
  std::vector<std::byte> pages;
};

// The shapes of the op's outputs for these inputs.
template <class Op>
std::vector<Shape> output_shapes(const Op& op, const OpArgs& a) {
  std::vector<Shape> in;
  for (int i = 0; i < a.n_in; ++i) in.push_back(a.in[i].shape);
  return op.shapes(in, *a.batch);
}
// Runs `compute` with fresh, poisoned outputs.
template <class Op, class Fn>
Outputs outputs_of(const Op& op, Case& c, Fn compute) {
  Outputs o;
  OpArgs a = c.args;
  const std::vector<Shape> shapes = output_shapes(op, a);
  for (const Shape& s : shapes) o.floats.emplace_back(size_t(s.rows * s.cols) * 4);
  for (size_t i = 0; i < shapes.size(); ++i)
    a.out[i] = {shapes[i], Format::f32, o.floats[i].data()};
  const Shape s = shapes.empty() ? a.in[0].shape : shapes[0];
  if (can_leave_acts(op) && s.cols % 32 == 0) {
    o.acts = Buffer(size_t(s.rows * s.cols / 32) * sizeof(Act));
    a.acts = {reinterpret_cast<Act*>(o.acts.data()), s.rows, s.cols / 32};
    o.act_rows = s.rows;
  }
  const std::vector<std::byte> before = c.pages;
  compute(a);
  o.pages = c.pages;
  std::copy(before.begin(), before.end(), c.pages.begin());
  return o;
}

// Normalised mean squared error of n floats.
inline double nmse(const float* x, const float* y, size_t n) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return INFINITY;
    error += (double(x[i]) - y[i]) * (double(x[i]) - y[i]), size += double(y[i]) * y[i];
  }
  return size > 0 ? error / size : error;
}
inline double nmse(Buffer& got, Buffer& want) {
  return nmse(got.floats(), want.floats(), want.size / 4);
}
// The same of the floats of recurrent states.
inline double nmse(const std::vector<std::byte>& got, const std::vector<std::byte>& want) {
  return nmse(reinterpret_cast<const float*>(got.data()),
              reinterpret_cast<const float*>(want.data()), want.size() / 4);
}

// Whether output i is correct: floats within a bound, everything else to the bit.
template <class Op>
bool close(const Op& op, size_t i, Buffer& got, Buffer& want, double bound) {
  if (kind_out(op, i) == ValueKind::f32) return nmse(got, want) < bound;
  return got.size == want.size && !std::memcmp(got.data(), want.data(), got.size);
}

// The layouts with which an op that uses a state is tested: keys and values in every format.
template <class Op>
std::vector<StateLayout> layouts_of(const Op& op, bool by_position = false) {
  std::vector<StateLayout> out;
  if constexpr (requires { op.source; })
    if (op.source == Attention::Source::batch) return {StateLayout{}};
  if constexpr (requires { op.kv; }) {
    const std::vector<State> states(size_t(op.state) + 1, op.kv);
    for (const KvType& t : kKvTypes)
      if (!op.kv.v_inside_k || info(t.format).block == 1 || op.kv.v_dim % 32 == 0)
        out.emplace_back(states, t.format, by_position);
  } else if constexpr (requires { op.kept(); }) {
    out.emplace_back(std::vector<State>(size_t(op.state) + 1, op.kept()), Format::f32, by_position);
  } else {
    out.emplace_back();
  }
  return out;
}
// f32 if there are no keys and values.
inline Format format_of(const StateLayout& states) {
  const bool any = !states.paged.empty() && states.paged[0].pool >= 0;
  return any ? states.paged[0].layout.format : Format::f32;
}

}  // namespace chaski::test
