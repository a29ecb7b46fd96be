// Every op x every format on the device, compared with the op's reference. Outputs are poisoned
// with NaN; ops are repeated, and run token by token. A token's result must not depend, bit for
// bit, on the other tokens of the batch. In tests-shim.bin the device is the host shim
// (tests/cuda_shim/); `make test-cuda` runs the same tests on a GPU.
#include "cuda/device/launch.cuh"
#include "cuda/table.h"
#include "tests/kit/cuda_device.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// The number of rows of a case's activations. For ops that depend on tokens these are its tokens;
// examples of the others have 1 token and more rows.
int64_t rows_of(const Case& c) {
  int64_t rows = c.args.in[0].weight ? c.batch.size() : c.args.in[0].shape.rows;
  for (int i = 0; i < c.args.n_in; ++i)
    if (!c.args.in[i].weight) rows = std::min(rows, c.args.in[i].shape.rows);
  return rows;
}

// A case with its inputs, batch and pages on the device, for rows [from, from + count). An input
// with several rows for each of these has all of them.
class DeviceCase {
 public:
  DeviceCase(Device& device, Case& c, int64_t from, int64_t count)
      : device_(device), case_(c), from_(from), batch_(c.batch), where_(c.where) {
    if (batch_.size() == rows_of(c))
      take(batch_.tokens, count), take(batch_.positions, count), take(batch_.cells, count),
          take(batch_.sequences, count);
    std::erase_if(batch_.outputs, [&](int32_t t) { return t < from || t >= from + count; });
    for (int32_t& t : batch_.outputs) t -= int32_t(from);
    pages_ = c.pages.empty() ? nullptr : device.upload(c.pages.data(), c.pages.size());
    where_.states.place({{pages_}});
    args_.n_in = c.args.n_in, args_.batch = &batch_, args_.where = &where_;
    std::vector<float> first;  // the floats that in_acts are made from
    for (int i = 0; i < args_.n_in; ++i) {
      Operand o = c.args.in[i];
      const auto* data = static_cast<const std::byte*>(o.data);
      size_t bytes = c.in[size_t(i)].size;
      if (!o.weight) {
        const int64_t each = o.shape.rows / rows_of(c);
        data += size_t(from * each * o.shape.cols) * 4,
            o.shape.rows = count * each, bytes = size_t(o.shape.rows * o.shape.cols) * 4;
      }
      if (i == 0 && !o.weight)
        first.assign(reinterpret_cast<const float*>(data),
                     reinterpret_cast<const float*>(data + bytes));
      o.data = device.upload(data, bytes);
      args_.in[i] = o;
    }
    if (c.args.in_acts.data) {
      OpArgs host = args_;
      host.in[0].data = first.data();
      std::vector<Act> acts;
      quantize_input(host, acts);
      args_.in_acts = host.in_acts;
      args_.in_acts.data = device.upload(acts);
    }
    context();
  }

  template <class Op>
  Outputs run(const Op& op) {
    const AnyOp any = op;
    const CudaEntry& entry = cuda_entry_of(any);
    REQUIRE(entry.supports(any, args_, context_.shared_limit));
    OpArgs a = args_;
    const std::vector<Shape> shapes = output_shapes(op, a);
    Outputs o;
    for (size_t i = 0; i < shapes.size(); ++i) {
      o.floats.emplace_back(size_t(shapes[i].rows * shapes[i].cols) * 4);
      a.out[i] = {shapes[i], Format::f32, device_.poisoned(o.floats[i].size)};
    }
    const Shape s = shapes.empty() ? a.in[0].shape : shapes[0];
    if (can_leave_acts(op) && s.cols % 32 == 0) {
      o.acts = Buffer(size_t(s.rows * s.cols / 32) * sizeof(Act));
      a.acts = {static_cast<Act*>(device_.poisoned(o.acts.size)), s.rows, s.cols / 32};
      o.act_rows = s.rows;
    }
    // zeroed
    context_.scratch = device_.upload(
        std::vector<std::byte>(entry.scratch(any, a, context_.context, context_.shared_limit)));
    entry.launch(any, a, context_);
    for (size_t i = 0; i < shapes.size(); ++i)
      device_.download(a.out[i].data, o.floats[i].data(), o.floats[i].size);
    device_.download(a.acts.data, o.acts.data(), o.acts.size);
    o.pages.resize(case_.pages.size());
    device_.download(pages_, o.pages.data(), o.pages.size());
    return o;
  }

 private:
  template <class T>
  void take(std::vector<T>& v, int64_t count) {
    v = std::vector<T>(v.begin() + from_, v.begin() + from_ + count);
  }
  void context() {
    context_ = device_.context();
    context_.context = 640;
    std::vector<int32_t> tables = case_.table, start;
    tables.insert(tables.end(), case_.other_table.begin(), case_.other_table.end());
    for (const int32_t s : batch_.sequences)
      start.push_back(s == 0 ? 0 : int32_t(case_.table.size()));
    context_.batch.tokens = device_.upload(batch_.tokens),
    context_.batch.positions = device_.upload(batch_.positions),
    context_.batch.cells = device_.upload(batch_.cells);
    context_.batch.outputs = device_.upload(batch_.outputs);
    std::vector<int32_t> store_start;
    for (size_t pool = 0; pool < batch_.stores.size(); ++pool) {
      store_start.push_back(int32_t(tables.size()));
      for (const Store& s : batch_.stores[pool])
        if (s.token >= from_ && s.token < from_ + batch_.size())
          tables.insert(tables.end(), {int32_t(s.token - from_), s.page, s.slot});
    }
    store_start.push_back(int32_t(tables.size()));
    context_.batch.store_start = device_.upload(store_start);
    context_.batch.tables = device_.upload(tables);
    context_.batch.table_start[0] = device_.upload(start);
    context_.batch.ropes[0] = device_.upload(case_.rope);
  }

  Device& device_;
  Case& case_;
  int64_t from_;
  Batch batch_;
  PassContext where_;
  OpArgs args_;
  LaunchContext context_;
  std::byte* pages_ = nullptr;
};

bool same(Buffer& a, Buffer& b) {
  return a.size == b.size && std::memcmp(a.data(), b.data(), a.size) == 0;
}

// Compares rows [from, from + n) of `whole` with all of `part`: floats and quantized blocks.
bool same_rows(Outputs& whole, Outputs& part, int64_t rows, int64_t from, int64_t n) {
  bool equal = true;
  for (size_t i = 0; i < whole.floats.size(); ++i) {
    const size_t row = whole.floats[i].size / size_t(rows);
    equal &= part.floats[i].size == row * size_t(n) &&
             !std::memcmp(whole.floats[i].data() + row * size_t(from), part.floats[i].data(),
                          row * size_t(n));
  }
  if (whole.act_rows == 0) return equal;
  const int64_t blocks = int64_t(whole.acts.size / sizeof(Act)) / whole.act_rows,
                each = whole.act_rows / rows;  // rows of a token
  const ActsView a{reinterpret_cast<Act*>(whole.acts.data()), whole.act_rows, blocks},
      b{reinterpret_cast<Act*>(part.acts.data()), part.act_rows, blocks};
  equal &= part.act_rows == n * each;
  for (int64_t row = 0; equal && row < part.act_rows; ++row)
    for (int64_t i = 0; i < blocks; ++i)
      equal &= !std::memcmp(&a.at(from * each + row, i), &b.at(row, i), sizeof(Act));
  return equal;
}

// The error bound of one op over one layout. Elementwise ops and exact integer dots differ from the
// reference by float rounding. Attention rounds q8 values to f16 (cuda/attention/kv_page.cuh).
template <class Op>
double bound(const StateLayout& layout) {
  return std::is_same_v<Op, Attention> && format_of(layout) == Format::q8 ? 1e-6 : 1e-7;
}

// Computes some rows of a case again with other rows of the batch: alone, in the middle, at a
// group's edge.
template <class Op>
void in_other_batches(Device& device, const Op& op, Case& c, int64_t rows, Outputs& whole) {
  for (const auto& [from, n] : {std::pair<int64_t, int64_t>{0, 1},
                                {rows - 1, 1},
                                {rows / 2, 2},
                                {0, 3},
                                {1, 8},
                                {0, 16},
                                {rows - 17, 17},
                                {0, 33},
                                {rows - 64, 64}}) {
    if (from < 0 || from + n > rows || n == rows) continue;
    // Attention deals tokens over blocks in the same way for most formats.
    if (std::is_same_v<Op, Attention> && format_of(c.where.states) != Format::f16 && n > 2 &&
        n != 17)
      continue;
    CAPTURE(from);
    CAPTURE(n);
    Outputs part = DeviceCase(device, c, from, n).run(op);
    CHECK(same_rows(whole, part, rows, from, n));
    device.free_all();
  }
}

template <class Op>
void try_example(Device& device, const Example<Op>& e, const StateLayout& layout) {
  auto c = make_case(e, layout);
  Outputs want = outputs_of(e.op, *c, [&](const OpArgs& a) { e.op.reference(a); });
  DeviceCase on_device(device, *c, 0, rows_of(*c));
  Outputs got = on_device.run(e.op);
  for (size_t i = 0; i < want.floats.size(); ++i)
    CHECK(close(e.op, i, got.floats[i], want.floats[i], bound<Op>(layout)));
  for (size_t i = 0; i < want.acts.size / sizeof(Act); ++i) {
    const Act &x = reinterpret_cast<Act*>(got.acts.data())[i],
              &y = reinterpret_cast<Act*>(want.acts.data())[i];
    CHECK(std::fabs(x.d - y.d) <= 1e-3f * y.d);
    CHECK(x.half[0] + x.half[1] == doctest::Approx(y.half[0] + y.half[1]).epsilon(0.02).scale(100));
    CHECK(x.ds == x.d * float(x.half[0] + x.half[1]));
    int sum = 0;
    for (int k = 0; k < 16; ++k) sum += x.q[k];
    CHECK(sum == x.half[0]);
  }
  REQUIRE(got.pages.size() == want.pages.size());
  if constexpr (requires { Op::kRoundsState; })
    CHECK(nmse(got.pages, want.pages) < bound<Op>(layout));
  else
    CHECK(got.pages == want.pages);

  constexpr bool kRecurrent = requires { e.op.kept(); };  // tokens must come once, in order
  if (!std::is_same_v<Op, KvWrite> && !kRecurrent) {      // run twice; pages are written only once
    Outputs again = on_device.run(e.op);
    for (size_t i = 0; i < got.floats.size(); ++i) CHECK(same(again.floats[i], got.floats[i]));
    CHECK(same(again.acts, got.acts));
  }
  device.free_all();
  if (!got.floats.empty() && !std::is_same_v<Op, TakeRows> && !kRecurrent)
    in_other_batches(device, e.op, *c, rows_of(*c), got);
}

// Some formats have kernels only on the CPU.
template <class Op>
bool has_kernels(const Example<Op>& e) {
  return std::all_of(e.in.begin(), e.in.end(),
                     [](const Input& in) { return !in.weight || info(in.format).on_device; });
}

template <class Op>
void sweep(Device& device, const std::vector<Example<Op>>& examples) {
  if (std::is_same_v<Op, TaylorScan>) return;  // only on the CPU
  int number = 0;
  for (const Example<Op>& e : examples) {
    if (!has_kernels(e)) continue;
    for (const StateLayout& layout : layouts_of(e.op, true)) {
      if (format_of(layout) == Format::q4_0) continue;  // only on the CPU
      if constexpr (std::is_same_v<Op, Attention>)      // so is an encoder's attention
        if (e.op.source == Attention::Source::batch || e.op.mask == Attention::Mask::full) continue;
      if constexpr (std::is_same_v<Op, LightningIndex> || std::is_same_v<Op, SparseAttention>)
        continue;
      const Format weight = e.in.size() > 1 && e.in[1].weight ? e.in[1].format : e.in[0].format;
      const std::string what = fmt::format("{}, example {}, weight {}, kv {}", Op::kName, number,
                                           info(weight).name, info(format_of(layout)).name);
      CAPTURE(what);
      try_example(device, e, layout);
    }
    ++number;
  }
}

}  // namespace

TEST_CASE("cuda: every op over every format equals its reference, in every batch, every time") {
  Device device;
  if (!device.available()) return;
  Ops::each([&]<class Op>(Op) { sweep<Op>(device, Op::examples()); });
}

// Ops that a file of mixed formats needs: q, k and v of two formats in one op, gate and up of two
// formats; and prompts, which use the tile kernel.
TEST_CASE("cuda: matmuls with weights of several formats, and for many tokens") {
  Device device;
  if (!device.available()) return;
  std::vector<Example<MatMul>> shared;
  std::vector<Example<GatedMatMul>> gated;
  for (int64_t tokens : {1, 6, 70}) {
    const Input x{{tokens, 512}}, b20{{1, 20}, Format::f32, true}, b40{{1, 40}, Format::f32, true};
    shared.push_back({{3, true},
                      {x,
                       {{40, 512}, Format::q4_k, true},
                       {{20, 512}, Format::q4_k, true},
                       {{20, 512}, Format::q6_k, true},
                       b40,
                       b20,
                       b20},
                      tokens});
    shared.push_back(
        {{2, false}, {x, {{40, 512}, Format::f16, true}, {{20, 512}, Format::q8, true}}, tokens});
    for (const auto& [gate, up] : {std::pair{Format::q4, Format::q4},
                                   {Format::q5_k, Format::q6_k},
                                   {Format::q8, Format::bf16},
                                   {Format::f16, Format::f16}})
      gated.push_back(
          {{Activation::silu}, {x, {{160, 512}, gate, true}, {{160, 512}, up, true}}, tokens});
    gated.push_back({{Activation::gelu},
                     {x, {{45, 512}, Format::q4_0, true}, {{45, 512}, Format::q4_0, true}},
                     tokens});
  }
  sweep(device, shared);
  sweep(device, gated);
}

// 12288 columns are 48 KB of shared memory, and the partial sums are more.
TEST_CASE("cuda: a norm of rows that are 48 KB long") {
  Device device;
  if (!device.available()) return;
  Example<Norm> e{{}, {{{2, 12288}}, {{1, 12288}, Format::f32, true}}, 2};
  sweep<Norm>(device, {e});
}

TEST_CASE("cuda: expert_matmul gives the bits of matmul with that expert's weight") {
  Device device;
  if (!device.available()) return;
  for (const Example<ExpertMatMul>& e : ExpertMatMul::examples()) {
    if (!has_kernels(e)) continue;
    auto c = make_case(e, StateLayout{});
    const OpArgs& a = c->args;
    const Operand &x = a.in[0], &w = a.in[1];
    Outputs all = DeviceCase(device, *c, 0, rows_of(*c)).run(e.op);
    const int64_t n = e.op.outputs(a), results = a.in[2].shape.rows * a.in[2].shape.cols;
    for (int expert = 0; expert < e.op.experts; ++expert) {
      Example<MatMul> example{{1, e.op.bias}, {{x.shape}, {{n, w.shape.cols}, w.format, true}}, 1};
      if (e.op.bias) example.in.push_back({{1, n}, Format::f32, true});
      auto one = make_case(example, StateLayout{});
      std::memcpy(one->in[0].data(), x.data, one->in[0].size);
      std::memcpy(one->in[1].data(), w.bytes() + size_t(expert) * one->in[1].size, one->in[1].size);
      if (e.op.bias) std::memcpy(one->in[2].data(), e.op.biases(a, expert), one->in[2].size);
      Outputs alone = DeviceCase(device, *one, 0, x.shape.rows).run(example.op);
      for (int64_t row = 0; row < results; ++row)
        if (ExpertMatMul::expert_of(a, row) == expert)
          CHECK(!std::memcmp(all.floats[0].floats() + row * n,
                             alone.floats[0].floats() + ExpertMatMul::input_of(a, row) * n,
                             size_t(n) * sizeof(float)));
      device.free_all();
    }
  }
}
