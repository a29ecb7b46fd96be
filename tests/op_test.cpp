// Every op x every instruction set of this machine, against the op's reference: outputs poisoned with NaN before, sentinels around
// them, work cut into odd pieces; and bit-equal between instruction sets (HACKING.md, exactness).
#include <cstring>
#include <map>

#include "ggml-like-tensor/backend.h"
#include "quant/random.h"
#include "tests/support.h"

using namespace chaski;

namespace {

constexpr size_t kGuard = 64;

// Floats between guards.
struct Buffer {
  std::vector<std::byte> bytes;
  size_t size = 0;
  explicit Buffer(size_t n = 0) : bytes(n + 2 * kGuard + 64, std::byte{0xAB}), size(n) { std::memset(data(), 0xFF, n); }  // NaN
  std::byte* data() {
    auto at = reinterpret_cast<uintptr_t>(bytes.data()) + kGuard;
    return reinterpret_cast<std::byte*>((at + 63) / 64 * 64);
  }
  bool guarded() {
    for (size_t i = 0; i < kGuard; ++i)
      if (data()[-1 - long(i)] != std::byte{0xAB} && data() - 1 - i >= bytes.data()) return false;
    for (std::byte* p = data() + size; p < bytes.data() + bytes.size(); ++p)
      if (*p != std::byte{0xAB}) return false;
    return true;
  }
};

uint32_t hash(uint32_t x) { return x = (x ^ x >> 16) * 0x45d9f3b, x = (x ^ x >> 16) * 0x45d9f3b, x ^ x >> 16; }
float noise(uint32_t i) { return float(hash(i) >> 8) / float(1 << 23) - 1; }

// One case: inputs and a batch, and outputs for whoever computes it.
struct Case {
  std::vector<Buffer> in;
  std::vector<Act> in_acts;
  OpArgs args;
  Batch batch;
  std::vector<int32_t> table, other_table;
  std::vector<float> rope;
  std::vector<std::byte> pages;
};

// Positions that reach over several pages and chunks of 256, two sequences.
void make_batch(Case& c, int64_t tokens, const KvLayout& layout) {
  for (int64_t t = 0; t < tokens; ++t) {
    const bool second = t >= tokens / 2 + 1;
    c.batch.tokens.push_back(int32_t((7 * t + 3) % 37));
    c.batch.positions.push_back(int32_t((second ? 5 : 509) + t) % (layout.layers ? 4096 : 64));
    if (t % 2) c.batch.outputs.push_back(int32_t(t));
  }
  if (c.batch.outputs.empty()) c.batch.outputs.push_back(0);
  for (int i = 0; i < 40; ++i) c.table.push_back(39 - i), c.other_table.push_back(40 + i);
  for (int64_t t = 0; t < tokens; ++t) c.batch.tables.push_back((t >= tokens / 2 + 1 ? c.other_table : c.table).data());
  c.batch.kv.layout = layout;
  c.pages.resize(80 * layout.page_bytes());
  c.batch.kv.pool = c.pages.data();
  for (int i = 0; i < 600 * 16; ++i) c.rope.push_back(noise(uint32_t(i)));
  c.batch.ropes = {c.rope.data()};
}

// Random keys and values at every position, through the op that writes them.
void fill_pages(Case& c, const KvLayout& l) {
  if (!l.layers) return;
  const int n = l.heads * l.head_dim;
  std::vector<float> k(size_t(n), 0), v(size_t(n), 0);
  Batch one = c.batch;
  for (int layer = 0; layer < l.layers; ++layer)
    for (const auto* table : {&c.table, &c.other_table})
      for (int p = 0; p < 600; ++p) {
        for (int i = 0; i < n; ++i) k[size_t(i)] = noise(uint32_t(p * 1000 + i)), v[size_t(i)] = noise(uint32_t(p * 777 + i + 5));
        one.positions = {p}, one.tables = {table->data()};
        OpArgs a;
        a.in[0] = {{1, n}, Format::f32, k.data()}, a.in[1] = {{1, n}, Format::f32, v.data()};
        a.batch = &one;
        KvWrite{layer, false, {}, {}}.reference(a);
      }
}

template <class Op>
std::unique_ptr<Case> make_case(const Example<Op>& e, const KvLayout& layout) {
  auto c = std::make_unique<Case>();
  make_batch(*c, e.tokens, layout);
  fill_pages(*c, layout);
  bool acts = false;
  for (const Input& i : e.in) {
    const bool tiled = i.weight && i.shape.rows > 1;
    TensorInfo t{"", i.format, i.shape.rows, i.shape.cols};
    Buffer b(tiled ? t.bytes() : size_t(i.shape.rows * i.shape.cols) * 4);
    if (tiled) {
      std::vector<std::byte> row(row_bytes(i.format, i.shape.cols) * 16);
      for (int64_t s = 0; s < (i.shape.rows + 15) / 16; ++s) {
        const int n = int(std::min<int64_t>(16, i.shape.rows - 16 * s));
        for (int r = 0; r < n; ++r)
          random_row(i.format, uint64_t(100 * s + r + 1), 0.1f, i.shape.cols, row.data() + size_t(r) * row_bytes(i.format, i.shape.cols));
        pack_strip(i.format, row.data(), row_bytes(i.format, i.shape.cols), n, i.shape.cols,
                   b.data() + size_t(s) * strip_bytes(i.format, i.shape.cols));
      }
      acts |= reads_acts(i.format);
    } else {
      for (int64_t k = 0; k < i.shape.rows * i.shape.cols; ++k)
        reinterpret_cast<float*>(b.data())[k] = 3 * noise(uint32_t(k + 17 * int64_t(c->in.size())));
    }
    c->in.push_back(std::move(b));
  }
  OpArgs& a = c->args;
  a.n_in = int(e.in.size());
  for (size_t i = 0; i < e.in.size(); ++i) a.in[i] = {e.in[i].shape, e.in[i].format, c->in[i].data(), e.in[i].weight};
  if (acts && (std::is_same_v<Op, MatMul> || std::is_same_v<Op, GatedMatMul>)) {
    c->in_acts.resize(size_t(a.in[0].shape.rows * a.in[0].shape.cols / 32));
    a.in_acts = {c->in_acts.data(), a.in[0].shape.rows, a.in[0].shape.cols / 32};
    for (int64_t r = 0; r < a.in[0].shape.rows; ++r) QuantizeActs::row(a.in[0].row(r), a.in_acts, r);
  }
  a.batch = &c->batch;
  return c;
}

struct Outputs {
  std::vector<Buffer> floats;
  Buffer acts;
  std::vector<std::byte> pages;
};

// Runs `compute` with fresh, poisoned outputs.
template <class Op, class Fn>
Outputs outputs_of(const Op& op, Case& c, const Example<Op>& e, Fn compute) {
  Outputs o;
  std::vector<Shape> in;
  for (const Input& i : e.in) in.push_back(i.shape);
  const std::vector<Shape> shapes = op.shapes(in, c.batch);
  for (const Shape& s : shapes) o.floats.emplace_back(size_t(s.rows * s.cols) * 4);
  OpArgs a = c.args;
  for (size_t i = 0; i < shapes.size(); ++i) a.out[i] = {shapes[i], Format::f32, o.floats[i].data()};
  constexpr bool kQuantizes = std::is_same_v<Op, Norm> || std::is_same_v<Op, GatedMatMul> || std::is_same_v<Op, QuantizeActs>;
  const Shape s = shapes.empty() ? in[0] : shapes[0];
  if (kQuantizes && s.cols % 32 == 0) {
    o.acts = Buffer(size_t(s.rows * s.cols / 32) * sizeof(Act));
    a.acts = {reinterpret_cast<Act*>(o.acts.data()), s.rows, s.cols / 32};
  }
  const std::vector<std::byte> before = c.pages;
  compute(a);
  o.pages = c.pages;
  std::copy(before.begin(), before.end(), c.pages.begin());
  return o;
}

// Normalised mean squared error.
double nmse(Buffer& got, Buffer& want) {
  double error = 0, size = 0;
  auto *x = reinterpret_cast<float*>(got.data()), *y = reinterpret_cast<float*>(want.data());
  for (size_t i = 0; i < want.size / 4; ++i) {
    if (!std::isfinite(x[i])) return INFINITY;
    error += (double(x[i]) - y[i]) * (double(x[i]) - y[i]), size += double(y[i]) * y[i];
  }
  return size > 0 ? error / size : error;
}

std::vector<KvLayout> layouts_of(const Attention& op) {
  std::vector<KvLayout> out;
  for (const KvType& t : kKvTypes) out.push_back({t.format, 2, op.kv_heads, op.head_dim});
  return out;
}
std::vector<KvLayout> layouts_of(const KvWrite&) {
  std::vector<KvLayout> out;
  for (const KvType& t : kKvTypes) out.push_back({t.format, 2, 2, 16});
  return out;
}
template <class Op>
std::vector<KvLayout> layouts_of(const Op&) {
  return {KvLayout{}};
}

template <class Op>
void sweep() {
  size_t id = 0, at = 0;
  Ops::each([&]<class Other>(Other) { id = std::is_same_v<Op, Other> ? at : id, ++at; });
  int number = 0;
  for (const Example<Op>& e : Op::examples()) {
    for (const KvLayout& layout : layouts_of(e.op)) {
      CAPTURE(Op::kName);
      CAPTURE(number);
      CAPTURE(info(layout.format).name);
      auto c = make_case(e, layout);
      Outputs want = outputs_of(e.op, *c, e, [&](const OpArgs& a) { e.op.reference(a); });
      Outputs first;
      for (const Backend* backend : cpu_backends()) {
        CAPTURE(backend->name);
        const KernelEntry& k = backend->table[id];
        REQUIRE(bool(k.run));
        Outputs got = outputs_of(e.op, *c, e, [&](const OpArgs& a) {
          const AnyOp op = e.op;
          Buffer scratch(k.scratch(op, a));
          const int64_t units = k.units(op, a), step = 3;  // odd pieces, last ones first
          std::vector<uint32_t> counters(kSharedCounters);
          Buffer shared(k.shared(op, a));
          for (int64_t u = (units - 1) / step * step; u >= 0; u -= step)
            k.run(op, a, u, std::min(u + step, units), {scratch.data(), counters.data(), shared.data()});
          CHECK(scratch.guarded());
          CHECK(shared.guarded());
          CHECK(counters == std::vector<uint32_t>(kSharedCounters));
        });
        for (size_t i = 0; i < want.floats.size(); ++i) {
          CHECK(got.floats[i].guarded());
          // Attention over blocks quantizes its queries, which the reference does not; everything else is float rounding.
          CHECK(nmse(got.floats[i], want.floats[i]) < (layout.blocks() ? 5e-4 : 1e-10));
        }
        CHECK(got.acts.guarded());
        CHECK(got.pages == want.pages);
        if (backend == cpu_backends().front()) {
          first = std::move(got);
          continue;
        }
        for (size_t i = 0; i < want.floats.size(); ++i)
          CHECK(std::memcmp(got.floats[i].data(), first.floats[i].data(), first.floats[i].size) == 0);
        CHECK(std::memcmp(got.acts.data(), first.acts.data(), first.acts.size) == 0);
      }
    }
    ++number;
  }
}

}  // namespace

TEST_CASE("op: every op on every instruction set equals its reference, and each other bit for bit") {
  Ops::each([]<class Op>(Op) { sweep<Op>(); });
}

// A batch of 21 tokens walks its chunks in one unit, a token alone has a unit for each chunk: see cpu/attention.h.
TEST_CASE("op: attention of a token is the same in a prompt and alone") {
  const Example<Attention> e{{1, 4, 2, 48, 0.2f, 0, 0}, {{{21, 192}}}, 21};
  for (const KvLayout& layout : layouts_of(e.op)) {
    auto c = make_case(e, layout);
    for (const Backend* backend : cpu_backends()) {
      const AnyOp op = e.op;
      const KernelEntry& k = backend->table[op.index()];
      auto run = [&](const OpArgs& a) {
        Buffer scratch(k.scratch(op, a)), shared(k.shared(op, a));
        std::vector<uint32_t> counters(kSharedCounters);
        for (int64_t u = k.units(op, a) - 1; u >= 0; --u) k.run(op, a, u, u + 1, {scratch.data(), counters.data(), shared.data()});
      };
      Outputs together = outputs_of(e.op, *c, e, run);
      for (int t = 0; t < 21; ++t) {
        Batch one = c->batch;
        one.tokens = {0}, one.positions = {c->batch.positions[size_t(t)]}, one.tables = {c->batch.tables[size_t(t)]};
        std::vector<float> alone(192);
        OpArgs a = c->args;
        a.in[0] = {{1, 192}, Format::f32, const_cast<float*>(c->args.in[0].row(t))};
        a.out[0] = {{1, 192}, Format::f32, alone.data()};
        a.batch = &one;
        run(a);
        CHECK(std::memcmp(alone.data(), together.floats[0].data() + size_t(t) * 192 * 4, 192 * 4) == 0);
      }
    }
  }
}

TEST_CASE("op: quantized activations are the reference's, to the bit") {
  const auto e = QuantizeActs::examples()[1];
  auto c = make_case(e, KvLayout{});
  Outputs want = outputs_of(e.op, *c, e, [&](const OpArgs& a) { e.op.reference(a); });
  for (const Backend* backend : cpu_backends()) {
    const AnyOp op = e.op;
    const KernelEntry& k = backend->table[op.index()];
    Outputs got = outputs_of(e.op, *c, e, [&](const OpArgs& a) { k.run(op, a, 0, k.units(op, a), {}); });
    CHECK(std::memcmp(got.acts.data(), want.acts.data(), want.acts.size) == 0);
  }
}

// Products at the ends of their ranges: the int16 sums of the instruction sets without VNNI must not overflow.
TEST_CASE("op: matmul at the extremes of every block format") {
  const int64_t cols = 256;
  for (int f = 0; f < kFormatCount; ++f) {
    if (info(Format(f)).block == 1) continue;
    const FormatInfo& format = info(Format(f));
    for (unsigned char fill : {0x00, 0xFF, 0x80, 0x7F}) {
      for (float sign : {1.0f, -1.0f}) {
        std::vector<std::byte> row(row_bytes(Format(f), cols), std::byte{fill});
        // Scales must be finite: 0x3c is 1.0 in the high byte of a half, wherever a half may stand.
        std::vector<std::byte> random(row.size());
        random_row(Format(f), 1, 1, cols, random.data());
        Formats::with(Format(f), [&]<class F>(F) {
          if constexpr (kHasHeader<F>) {
            std::memcpy(row.data(), random.data(), kHeaderBytes<F>);
          } else if constexpr (!F::kFloat) {
            for (int64_t b = 0; b < cols / F::kBlock; ++b) {
              auto* to = reinterpret_cast<typename F::Block*>(row.data()) + b;
              to->d = reinterpret_cast<const typename F::Block*>(random.data())[b].d;
              if constexpr (requires { to->dmin; }) to->dmin = to->d;
              if constexpr (requires { to->m; }) to->m = to->d;
            }
          }
        });
        std::vector<std::byte> strip(strip_bytes(Format(f), cols) + 64);
        auto* tile = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(strip.data()) + 63) / 64 * 64);
        pack_strip(Format(f), row.data(), 0, 16, cols, tile);
        std::vector<float> x(size_t(cols), sign);
        std::vector<Act> acts(size_t(cols / 32));
        OpArgs a;
        a.in[0] = {{1, cols}, Format::f32, x.data()}, a.in[1] = {{16, cols}, Format(f), tile, true};
        a.in_acts = {acts.data(), 1, cols / 32};
        QuantizeActs::row(x.data(), a.in_acts, 0);
        float want[16], got[16];
        a.out[0] = {{1, 16}, Format::f32, want};
        MatMul{}.reference(a);
        a.out[0].data = got;
        for (const Backend* backend : cpu_backends()) {
          CAPTURE(backend->name);
          CAPTURE(format.name);
          CAPTURE(int(fill));
          const AnyOp op = MatMul{};
          const KernelEntry& k = backend->table[op.index()];
          Buffer scratch(k.scratch(op, a));
          k.run(op, a, 0, 1, {.own = scratch.data()});
          CHECK(std::memcmp(got, want, sizeof want) == 0);
        }
      }
    }
  }
}
