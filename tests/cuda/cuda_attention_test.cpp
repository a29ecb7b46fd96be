// The device's attention with long contexts, sequences of different lengths and heads of every
// shape, compared with the reference. A token's bits must be the same in three cases: alone (its
// context split over blocks), together with others of its sequence, and in a prompt (one block
// takes all chunks).
#include "tests/kit/cuda_device.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

constexpr int kContext = 1100;

// Tokens of several sequences at the given positions, over pages of random keys and values.
// Positions after a sequence's end are NaN.
struct Sequences {
  Attention op;
  StateLayout states;
  std::vector<std::vector<int32_t>> tables;
  std::vector<std::byte> pages;
  std::vector<float> q;
  Batch batch;
  PassContext where;
  int context;

  Sequences(const Attention& op, Format format, const std::vector<std::vector<int32_t>>& positions,
            int context = kContext)
      : op(op),
        states(std::vector<State>(size_t(op.state) + 1, op.kv), format, true),
        tables(positions.size()),
        context(context) {
    const int per_sequence = context / kPage + 1;
    const size_t groups = (positions.size() * size_t(per_sequence) + kPageGroup - 1) / kPageGroup;
    pages.resize(groups * kPageGroup * states.page_bytes(), std::byte{0xFF});
    states.place({{pages.data()}}), where.states = states, batch.tables.resize(1);
    for (size_t s = 0; s < positions.size(); ++s) {
      for (int i = 0; i < per_sequence; ++i)
        tables[s].push_back(int32_t(size_t(i) * positions.size() + s));
      batch.tables[0].push_back(tables[s].data());
      fill(s, positions[s].back());
    }
    for (size_t s = 0; s < positions.size(); ++s)
      for (int32_t p : positions[s])
        batch.tokens.push_back(0), batch.cells.push_back(p), batch.sequences.push_back(int32_t(s));
    q.resize(size_t(batch.size()) * size_t(op.heads * op.kv.k_dim));
    for (size_t i = 0; i < q.size(); ++i) q[i] = 2 * noise(uint32_t(i + 3));
  }
  void fill(size_t sequence, int last) {
    const int64_t n = last + 1, k_cols = op.kv.heads * op.kv.k_dim,
                  v_cols = op.kv.heads * op.kv.v_dim;
    std::vector<float> k(size_t(n * k_cols)), v(size_t(n * v_cols));
    Batch all = batch;
    for (int p = 0; p <= last; ++p) {
      for (int64_t i = 0; i < k_cols; ++i)
        k[size_t(p * k_cols + i)] = noise(uint32_t(p * 1009 + int(sequence) * 7) + uint32_t(i));
      for (int64_t i = 0; i < v_cols; ++i)
        v[size_t(p * v_cols + i)] = noise(uint32_t(p * 757) + uint32_t(i));
      all.tokens.push_back(0), all.cells.push_back(p), all.sequences.push_back(int32_t(sequence));
    }
    all.stores = {stores_of(all, 0)};
    OpArgs a;
    a.in[0] = {{n, k_cols}, Format::f32, k.data()};
    a.in[1] = {{n, v_cols}, Format::f32, v.data()};
    a.batch = &all, a.where = &where;
    KvWrite{op.state, op.kv, false, {}, {}}.reference(a);
  }
  OpArgs args(const Batch& b, const PassContext& at, int64_t n) const {
    OpArgs a;
    a.n_in = 1, a.batch = &b, a.where = &at;
    a.in[0].shape = {n, op.heads * op.kv.k_dim}, a.out[0].shape = {n, op.heads * op.kv.v_dim};
    return a;
  }
  std::vector<float> reference() const {
    std::vector<float> out(size_t(batch.size() * op.heads * op.kv.v_dim));
    OpArgs a = args(batch, where, batch.size());
    a.in[0].data = const_cast<float*>(q.data()), a.out[0].data = out.data();
    op.reference(a);
    return out;
  }
  bool supported(const Device& device) const {
    return cuda_entry_of(Attention{})
        .supports(op, args(batch, where, batch.size()), device.context().shared_limit);
  }
  // Computes tokens [from, from + n) as a separate pass. What a run leaves in its scratch memory
  // must not matter, so f16 and f32 pages are computed twice. The size of an item decides whether
  // totals are in scratch memory; f32 has the largest and most often needs it.
  std::vector<float> on_device(Device& device, int64_t from, int64_t n,
                               size_t shared_limit = 0) const {
    const int64_t cols = op.heads * op.kv.k_dim;
    Batch part = batch;
    part.tokens.resize(size_t(n));
    PassContext there = where;
    there.states.place({{device.upload(pages)}});
    OpArgs a = args(part, there, n);
    a.in[0].data =
        device.upload(std::vector<float>(q.begin() + from * cols, q.begin() + (from + n) * cols));
    std::vector<float> out(size_t(n * op.heads * op.kv.v_dim));
    LaunchContext c = device.context();
    c.context = context;
    if (shared_limit) c.shared_limit = shared_limit;
    std::vector<int32_t> all, start;
    for (const auto& t : tables) all.insert(all.end(), t.begin(), t.end());
    for (int64_t t = from; t < from + n; ++t)
      start.push_back(batch.sequences[size_t(t)] * int32_t(tables[0].size()));
    c.batch.tables = device.upload(all), c.batch.table_start[0] = device.upload(start);
    c.batch.cells = device.upload(
        std::vector<int32_t>(batch.cells.begin() + from, batch.cells.begin() + from + n));
    const CudaEntry entry = cuda_entry_of(Attention{});
    c.scratch =
        device.upload(std::vector<std::byte>(entry.scratch(op, a, context, c.shared_limit)));
    REQUIRE(entry.supports(op, a, c.shared_limit));
    const Format format = states.paged[size_t(op.state)].layout.format;
    const bool twice = format == Format::f16 || format == Format::f32;
    for (int run = 0; run <= twice; ++run) {
      a.out[0].data = device.poisoned(out.size() * 4);
      entry.launch(op, a, c);
    }
    device.download(a.out[0].data, out.data(), out.size() * 4);
    device.free_all();
    return out;
  }
};

double deviation(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    error += (double(got[i]) - want[i]) * (double(got[i]) - want[i]),
        size += double(want[i]) * want[i];
  }
  return error / size;
}

// The product of q8's scale and code is rounded to f16, at most 2^-12 of a value. Nothing else is
// rounded as coarsely.
double bound(Format format) { return format == Format::q8 ? 1e-6 : 1e-10; }

std::vector<int32_t> from_to(int first, int last) {
  std::vector<int32_t> p;
  for (int i = first; i <= last; ++i) p.push_back(i);
  return p;
}

}  // namespace

TEST_CASE("cuda: attention at deep contexts, over ragged sequences and heads of every shape") {
  Device device;
  if (!device.available()) return;
  // state, heads, {KV heads, k_dim, v_dim, window}, scale, soft_cap
  const Attention ops[] = {{0, 4, {4, 64, 64, 0}, .125f},    {1, 7, {1, 32, 32, 0}, .2f},
                           {0, 20, {1, 16, 16, 0}, .25f},    {0, 8, {2, 80, 80, 0}, .1f, 30},
                           {0, 2, {1, 128, 128, 400}, .1f},  {0, 3, {1, 512, 512, 0}, .05f},
                           {0, 40, {1, 20, 20, 0}, .2f},     {1, 4, {2, 96, 64, 0}, .1f},
                           {0, 6, {2, 24, 144, 300}, .2f, 0}};
  for (const Attention& op : ops)
    for (Format format : {Format::f32, Format::f16, Format::f8, Format::q8}) {
      CAPTURE(op.heads);
      CAPTURE(op.kv.k_dim);
      CAPTURE(info(format).name);
      // Decode of three sequences, one of them at a chunk's edge, and a run of five tokens across a
      // chunk's edge.
      const Sequences s(op, format, {{0}, {255}, from_to(509, 513), {1090}});
      // f32 pages of 512 channels do not fit into 99 KB; a case below checks that this is refused
      if (!s.supported(device)) {
        CHECK(op.kv.k_dim == 512);
        CHECK(format == Format::f32);
        continue;
      }
      const std::vector<float> got = s.on_device(device, 0, s.batch.size());
      CHECK(deviation(got, s.reference()) < bound(format));
      for (int64_t t : {1, 7}) {
        const std::vector<float> alone = s.on_device(device, t, 1);
        CHECK(std::memcmp(alone.data(), got.data() + t * int64_t(alone.size()), alone.size() * 4) ==
              0);
      }
    }
}

TEST_CASE("cuda: attention of a prompt gives the bits of its tokens one by one") {
  Device device;
  if (!device.available()) return;
  for (const Attention& op :
       {Attention{0, 4, {1, 32, 32, 0}, .2f}, Attention{0, 4, {2, 32, 32, 270}, .2f}})
    for (Format format : {Format::f32, Format::f16, Format::f8, Format::q8}) {
      CAPTURE(info(format).name);
      CAPTURE(op.kv.window);
      // 39 tokens, so the context is not split
      const Sequences s(op, format, {from_to(500, 529), {3}, from_to(900, 907)});
      const std::vector<float> whole = s.on_device(device, 0, s.batch.size());
      CHECK(deviation(whole, s.reference()) < bound(format));
      const int64_t cols = op.heads * op.kv.v_dim;
      for (const auto& [from, n] :
           {std::pair<int64_t, int64_t>{0, 1}, {12, 1}, {30, 1}, {9, 7}, {38, 1}, {28, 6}}) {
        const std::vector<float> part = s.on_device(device, from, n);
        CHECK(std::memcmp(part.data(), whole.data() + from * cols, part.size() * 4) == 0);
      }
    }
}

TEST_CASE(
    "cuda: attention is the same in little shared memory, and with queries beyond the range of "
    "f16") {
  Device device;
  if (!device.available()) return;
  for (Format format : {Format::f32, Format::f16, Format::f8, Format::q8}) {
    CAPTURE(info(format).name);
    Sequences s({0, 8, {1, 64, 64, 0}, .2f}, format, {from_to(700, 705)});
    const std::vector<float> before = s.on_device(device, 0, 6);
    CHECK(deviation(before, s.reference()) < bound(format));
    const std::vector<float> little = s.on_device(device, 0, 6, 80 * 1024);
    CHECK(std::memcmp(little.data(), before.data(), before.size() * sizeof(float)) == 0);
    for (float& q : s.q) q *= 0x1p30f;
    s.op.scale *= 0x1p-30f;
    const std::vector<float> large = s.on_device(device, 0, 6);
    CHECK(std::memcmp(large.data(), before.data(), before.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("cuda: attention does not add what a query must not see, NaN or not") {
  Device device;
  if (!device.available()) return;
  for (Format format : {Format::f32, Format::f16, Format::f8, Format::q8})
    for (const bool keys : {false, true}) {
      CAPTURE(info(format).name);
      CAPTURE(keys);
      Sequences s({0, 2, {1, 32, 32, 0}, .2f}, format, {from_to(260, 264)});
      // the slots after them in the page are NaN already
      const std::vector<float> before = s.on_device(device, 0, 5);
      CHECK(deviation(before, s.reference()) < bound(format));
      // The key or value (for q8: its scale) of the last position becomes NaN. Four of the five
      // tokens do not see that position.
      const KvView& kv = s.states.paged[0];
      const KvLayout& l = kv.layout;
      const int32_t page = s.tables[0][264 / kPage];
      const size_t slot = 264 % kPage, item = info(format).row_block_bytes;
      std::byte* at = keys ? kv.keys(0, page) : kv.values(0, page);
      if (format == Format::q8)
        std::memset(at + kPage * l.v_cols() + 2 * slot, 0xFF, 2);
      else if (keys)
        std::memset(at + slot * item, 0xFF, item);  // of channel 0
      else
        std::memset(at + slot * size_t(l.v_cols()) * item, 0xFF, size_t(l.v_cols()) * item);
      const std::vector<float> after = s.on_device(device, 0, 5);
      CHECK(std::memcmp(after.data(), before.data(), 4 * 64 * sizeof(float)) == 0);
      CHECK(!std::isfinite(after[4 * 64]));
    }
}

// Consumer cards have 99 KB of shared memory a block, which does not hold the totals of 512
// channels.
TEST_CASE("cuda: attention over heads of 512 channels needs at most 99 KB of shared memory") {
  Device device;
  if (!device.available()) return;
  constexpr size_t kLittle = 99 * 1024, kMuch = 227 * 1024;
  for (Format format : {Format::f16, Format::q8}) {
    CAPTURE(info(format).name);
    // one chunk, two chunks and, with 33 tokens, a context that is not split
    const Sequences s({0, 2, {1, 512, 512, 0}, .05f}, format, {{3}, from_to(500, 531)});
    const std::vector<float> whole = s.on_device(device, 0, s.batch.size(), kLittle);
    CHECK(deviation(whole, s.reference()) < bound(format));
    const std::vector<float> few = s.on_device(device, 0, 4, kLittle);
    CHECK(std::memcmp(few.data(), whole.data(), few.size() * sizeof(float)) == 0);
    if (device.context().shared_limit < kMuch) continue;
    const std::vector<float> much = s.on_device(device, 0, 4, kMuch);
    CHECK(std::memcmp(much.data(), whole.data(), much.size() * sizeof(float)) == 0);
  }
  // f32 pages of such heads do not fit. The plan says so, not a launch.
  const Sequences s({0, 4, {1, 512, 512, 0}, .05f}, Format::f32, {{3}});
  const CudaEntry entry = cuda_entry_of(Attention{});
  const OpArgs a = s.args(s.batch, s.where, 1);
  CHECK(!entry.supports(s.op, a, kLittle));
  CHECK(entry.supports(s.op, a, kMuch));
}

// Multi-head latent attention: DeepSeek's width, and small ones. 20 channels are not whole
// fragments, 40 heads are more than a block takes.
TEST_CASE("cuda: attention over values inside keys") {
  Device device;
  if (!device.available()) return;
  for (const Attention& op :
       {Attention{0, 3, {1, 576, 512, 0, true}, .05f}, Attention{0, 40, {1, 48, 32, 0, true}, .2f},
        Attention{0, 3, {1, 20, 20, 0, true}, .2f}, Attention{0, 4, {2, 96, 64, 300, true}, .2f}})
    for (Format format : {Format::f32, Format::f16, Format::f8, Format::q8}) {
      if (format == Format::q8 && op.kv.v_dim % 32 != 0) continue;
      CAPTURE(op.kv.k_dim);
      CAPTURE(info(format).name);
      const bool wide = op.kv.k_dim == 576, many = op.kv.window > 0;  // more than 32 tokens
      Sequences s(op, format, {{3}, from_to(255, 257), from_to(many ? 500 : 530, 531)});
      if (!s.supported(device)) {
        CHECK(wide);
        CHECK(format == Format::f32);
        continue;
      }
      const int64_t cols = op.heads * op.kv.v_dim;
      const std::vector<float> got = s.on_device(device, 0, s.batch.size());
      CHECK(deviation(got, s.reference()) < bound(format));
      for (const auto& [from, n] : {std::pair<int64_t, int64_t>{0, 1}, {3, 1}, {2, 4}}) {
        const std::vector<float> part = s.on_device(device, from, n);
        CHECK(std::memcmp(part.data(), got.data() + from * cols, part.size() * 4) == 0);
      }
      if (wide) continue;
      // The last position, which only the last token sees, becomes NaN.
      const KvView& kv = s.states.paged[0];
      const int32_t page = s.tables[2][531 / kPage];
      const size_t slot = 531 % kPage, item = info(format).row_block_bytes;
      if (format == Format::q8)
        std::memset(reinterpret_cast<Q8::Tile*>(kv.keys(0, page))->d + slot, 0xFF, 2);
      else
        std::memset(kv.keys(0, page) + slot * item, 0xFF, item);  // channel 0
      const std::vector<float> after = s.on_device(device, 0, s.batch.size());
      CHECK(std::memcmp(after.data(), got.data(), size_t((s.batch.size() - 1) * cols) * 4) == 0);
      CHECK(!std::isfinite(after[size_t((s.batch.size() - 1) * cols)]));
    }
}

TEST_CASE("cuda: attention merges more chunks than there are blocks, and than it merges at once") {
  Device device;
  if (!device.available()) return;
  const Sequences s({0, 4, {1, 16, 16, 0}, .25f}, Format::f16, {{8500}, {700}}, 8600);
  const std::vector<float> got = s.on_device(device, 0, 2);
  CHECK(deviation(got, s.reference()) < bound(Format::f16));
  const std::vector<float> alone = s.on_device(device, 0, 1);
  CHECK(std::memcmp(alone.data(), got.data(), alone.size() * sizeof(float)) == 0);
}
