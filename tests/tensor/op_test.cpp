// Every op x every instruction set of this machine, compared with the op's reference. Outputs are
// poisoned with NaN, sentinels surround them, and work is cut into odd pieces. Results must be
// bit-equal between instruction sets (HACKING.md, exactness).
#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/base/nearest.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

template <class Op>
void sweep() {
  size_t id = 0, at = 0;
  Ops::each([&]<class Other>(Other) { id = std::is_same_v<Op, Other> ? at : id, ++at; });
  int number = 0;
  for (const Example<Op>& e : Op::examples()) {
    for (const StateLayout& layout : layouts_of(e.op)) {
      CAPTURE(Op::kName);
      CAPTURE(number);
      CAPTURE(info(format_of(layout)).name);
      auto c = make_case(e, layout);
      Outputs want = outputs_of(e.op, *c, [&](const OpArgs& a) { e.op.reference(a); });
      Outputs first;
      for (const Backend* backend : cpu_backends()) {
        CAPTURE(backend->name);
        const KernelEntry& k = backend->table[id];
        Outputs got = outputs_of(e.op, *c, [&](const OpArgs& a) {
          const AnyOp op = e.op;
          Buffer scratch(k.scratch(op, a));
          const int64_t units = k.units(op, a), step = 3;  // odd pieces, the last ones first
          std::vector<uint32_t> counters(kSharedCounters);
          Buffer shared(k.shared(op, a));
          for (int64_t u = (units - 1) / step * step; u >= 0; u -= step)
            k.run(op, a, u, std::min(u + step, units),
                  {scratch.data(), counters.data(), shared.data()});
          CHECK(scratch.guarded());
          CHECK(shared.guarded());
          CHECK(counters == std::vector<uint32_t>(kSharedCounters));
        });
        for (size_t i = 0; i < want.floats.size(); ++i) {
          CHECK(got.floats[i].guarded());
          // Attention over blocks quantizes its queries, the reference does not. All other
          // differences are float rounding.
          CHECK(close(e.op, i, got.floats[i], want.floats[i],
                      info(format_of(layout)).block > 1 ? 5e-4 : 1e-10));
        }
        CHECK(got.acts.guarded());
        if constexpr (requires { Op::kRoundsState; })
          CHECK(nmse(got.pages, want.pages) < 1e-10);
        else
          CHECK(got.pages == want.pages);
        if (backend == cpu_backends().front()) {
          first = std::move(got);
          continue;
        }
        for (size_t i = 0; i < want.floats.size(); ++i)
          CHECK(std::memcmp(got.floats[i].data(), first.floats[i].data(), first.floats[i].size) ==
                0);
        CHECK(std::memcmp(got.acts.data(), first.acts.data(), first.acts.size) == 0);
        CHECK(got.pages == first.pages);
      }
    }
    ++number;
  }
}

}  // namespace

TEST_CASE(
    "op: every op on every instruction set equals its reference, and each other bit for bit") {
  Ops::each([]<class Op>(Op) { sweep<Op>(); });
}

namespace {

// Runs every unit by itself, the last ones first.
void run_backwards(const Backend& backend, const AnyOp& op, const OpArgs& a) {
  const KernelEntry& k = backend.table[op.index()];
  Buffer scratch(k.scratch(op, a)), shared(k.shared(op, a));
  std::vector<uint32_t> counters(kSharedCounters);
  for (int64_t u = k.units(op, a) - 1; u >= 0; --u)
    k.run(op, a, u, u + 1, {scratch.data(), counters.data(), shared.data()});
  CHECK(shared.guarded());
  CHECK(counters == std::vector<uint32_t>(kSharedCounters));
}

// Checks, on every instruction set, that attention computes the same output for a token of a case
// alone as together with the other tokens.
void expect_same_alone(const Attention& op, Case& c) {
  for (const Backend* backend : cpu_backends()) {
    CAPTURE(backend->name);
    Outputs together = outputs_of(op, c, [&](const OpArgs& a) { run_backwards(*backend, op, a); });
    const int64_t cols = op.heads * op.kv.v_dim;
    for (int64_t t = 0; t < c.batch.size(); ++t) {
      Batch one = c.batch;
      one.tokens = {0}, one.cells = {c.batch.cells[size_t(t)]},
      one.sequences = {c.batch.sequences[size_t(t)]};
      plan_readings(one, c.where.states.pools);
      std::vector<float> alone(static_cast<size_t>(cols));
      OpArgs a = c.args;
      a.in[0] = {{1, a.in[0].shape.cols}, Format::f32, const_cast<float*>(c.args.in[0].row(t))};
      a.out[0] = {{1, cols}, Format::f32, alone.data()};
      a.batch = &one;
      run_backwards(*backend, op, a);
      CHECK(std::memcmp(alone.data(), together.floats[0].floats() + t * cols, size_t(cols) * 4) ==
            0);
    }
  }
}

}  // namespace

// A batch of 21 tokens takes its chunks in one unit. A single token has a unit for each chunk: see
// cpu/attention.h.
TEST_CASE("op: attention of a token is the same in a prompt and alone") {
  const Example<Attention> e{{1, 4, {2, 48, 48, 0}, 0.2f}, {{{21, 192}}}, 21};
  for (const StateLayout& layout : layouts_of(e.op)) expect_same_alone(e.op, *make_case(e, layout));
}

// All sequences share two chunks and have a page of their own. One is a step shorter, one has two
// tokens.
TEST_CASE("op: attention reads shared pages once, with the bits of each sequence alone") {
  const Attention ops[] = {{1, 6, {2, 48, 48, 0}, 0.2f},
                           {0, 20, {1, 16, 32, 300}, 0.25f, 0, 8},
                           {0, 2, {2, 32, 16, 0}, 0.2f, 5}};
  const int sequences = 20, tokens = sequences + 1;
  for (const Attention& op : ops) {
    const Example<Attention> e{op, {{{tokens, op.heads * op.kv.k_dim}}}, tokens};
    for (const StateLayout& layout : layouts_of(op)) {
      CAPTURE(info(format_of(layout)).name);
      auto c = make_case(e, layout);
      Batch& b = c->batch;
      std::vector<std::vector<int32_t>> tables;
      b.cells.clear(), b.sequences.clear(), b.tables[0].clear();
      for (int s = 0; s < sequences; ++s) {
        tables.push_back(c->other_table);
        tables.back()[32] = 5 + s;
        b.tables[0].push_back(tables.back().data());
        for (int i = 0; i < (s == 7 ? 2 : 1); ++i)
          b.cells.push_back(s == 3 ? 518 : 519 + i), b.sequences.push_back(s);
      }
      plan_readings(b, layout.pools);
      const Reading& r = b.readings[0];
      CHECK(r.sequences == sequences);
      CHECK(r.alone == 3 * sequences);
      CHECK(r.groups.size() == 2 + size_t(sequences));
      CHECK(r.runs.size() == 3 * size_t(sequences));
      expect_same_alone(op, *c);
    }
  }
}

TEST_CASE("op: values inside keys are stored once, with the same bits") {
  const Attention op{0, 20, {1, 72, 64, 300, true}, 0.1f};
  const Example<Attention> e{op, {{{21, 1440}}}, 21};
  std::vector<std::string> names;
  for (const KvType& t : kKvTypes)
    if (info(t.format).block == 1) names.push_back(t.name);
  const std::string others = one_of(names);
  for (const KvType& t : kKvTypes) {
    CAPTURE(t.name);
    const std::vector<State> states{op.kv};
    const bool blocks = info(t.format).block > 1;
    const std::vector<State> odd{Paged{1, 72, 40, 0, true}};
    if (blocks)
      CHECK(error_of([&] { StateLayout(odd, t.format, false); }).what() ==
            fmt::format("--kv is {}, expected {}: this model's values are 40 channels of its keys, "
                        "and not a multiple of 32",
                        t.name, others));
    const StateLayout layout(states, t.format, false);
    CHECK(layout.page_bytes() == size_t(kPage) * row_bytes(t.format, blocks ? 96 : 72));
    expect_same_alone(op, *make_case(e, layout));
  }
}

namespace {

void run_alone(const Backend& backend, const AnyOp& op, const OpArgs& a) {
  const KernelEntry& k = backend.table[op.index()];
  Buffer scratch(k.scratch(op, a));
  k.run(op, a, 0, k.units(op, a), {.own = scratch.data()});
}

}  // namespace

TEST_CASE("op: top_k gives the k largest, the first of equal ones, NaN before all") {
  const float x[] = {1, -0.0f, 3, 0, 3, -INFINITY, INFINITY, 3, -1};
  const float bad[] = {1, INFINITY, NAN, -INFINITY, -NAN, 2, 0, 0, 0};
  const std::pair<const float*, std::vector<int32_t>> cases[] = {
      {x, {6, 2, 4, 7, 0, 1, 3, 8, 5}}, {bad, {2, 4, 1, 5, 0, 6, 7, 8, 3}}};
  for (const auto& [from, want] : cases)
    for (int k = 1; k <= 9; ++k) {
      std::vector<int32_t> got(9, -1);
      std::vector<float> values(9);
      OpArgs a;
      a.in[0] = {{1, 9}, Format::f32, const_cast<float*>(from)};
      a.out[0] = {{1, k}, Format::f32, got.data()}, a.out[1] = {{1, k}, Format::f32, values.data()};
      const auto check = [&] {
        CHECK(std::equal(got.begin(), got.begin() + k, want.begin()));
        for (int i = 0; i < k; ++i)
          CHECK(!std::memcmp(&values[size_t(i)], &from[want[size_t(i)]], sizeof(float)));
      };
      TopK{k}.reference(a);
      check();
      for (const Backend* backend : cpu_backends()) {
        std::fill(got.begin(), got.end(), -1);
        run_alone(*backend, TopK{k}, a);
        check();
      }
    }
}

TEST_CASE("op: every instruction set has the kernels of every format") {
  for (const Backend* backend : cpu_backends()) {
    CAPTURE(backend->name);
    Formats::each([&]<class F>(F) {
      CAPTURE(std::string(F::kName));
      const FormatKernels& kernels = backend->formats[int(F::kFormat)];
      CHECK(bool(kernels.strips_times));
      const bool tiles = !F::kFloat && backend->name == std::string_view("amx");
      CHECK(bool(kernels.tiles_times) == tiles);
      CHECK(bool(kernels.tile_peak) == tiles);
      CHECK(bool(kernels.peak));
      CHECK(bool(kernels.weigh_values) == KvFormats::has<F>);
    });
  }
}

TEST_CASE("op: route drops groups, and of equal scores chooses the first") {
  const float x[] = {2, 1, 0, 3, -9, 3, 1, 1};  // two of a group
  struct Wanted {
    Route op;
    std::vector<int32_t> experts;
  };
  using enum Route::Score;
  constexpr auto two = Route::Rank::sum_of_two, one = Route::Rank::largest;
  const Wanted all[] = {{{sigmoid, two, 3}, {3, 5, 0}},
                        {{soft_max, two, 3}, {3, 5, 0}},
                        {{sigmoid, two, 3, 4, 2}, {0, 1, 6}},  // groups 0 and 3
                        {{sigmoid, one, 3, 4, 2}, {3, 5, 2}},  // groups 1 and 2
                        {{sigmoid, one, 1, 4, 1}, {3}},
                        {{soft_max, two, 3, 1, 1, false, true, 1, 2}, {1, 2, 0}}};
  for (const auto& [op, wanted] : all) {
    std::vector<int32_t> got(size_t(op.k));
    std::vector<float> weights(size_t(op.k));
    OpArgs a;
    a.in[0] = {{1, 8}, Format::f32, const_cast<float*>(x)};
    a.out[0] = {{1, op.k}, Format::f32, got.data()};
    a.out[1] = {{1, op.k}, Format::f32, weights.data()};
    op.reference(a);
    CHECK(got == wanted);
    for (const Backend* backend : cpu_backends()) {
      std::fill(got.begin(), got.end(), -1);
      run_alone(*backend, op, a);
      CHECK(got == wanted);
    }
  }
}

TEST_CASE("op: head_matmul gives the bits of matmul with that head's slice and weight") {
  for (const Example<HeadMatMul>& e : HeadMatMul::examples()) {
    auto c = make_case(e, StateLayout{});
    const int64_t n = e.op.outputs(c->args), rows = c->args.in[0].shape.rows,
                  cols = c->args.in[1].shape.cols;
    std::vector<float> all(size_t(rows * n * e.op.heads)), alone(size_t(rows * n)),
        slice(size_t(rows * cols));
    for (const Backend* backend : cpu_backends()) {
      CAPTURE(backend->name);
      OpArgs a = c->args;
      a.out[0] = {{rows, n * e.op.heads}, Format::f32, all.data()};
      run_alone(*backend, e.op, a);
      for (int head = 0; head < e.op.heads; ++head) {
        for (int64_t t = 0; t < rows; ++t)
          std::copy_n(a.in[0].row(t) + head * cols, cols, slice.data() + t * cols);
        OpArgs one = c->args;
        one.in[0] = {{rows, cols}, Format::f32, slice.data()};
        Operand& w = one.in[1];
        w.data = static_cast<std::byte*>(w.data) +
                 head * n / kStrip * int64_t(strip_bytes(w.format, cols));
        w.shape.rows = n, one.out[0] = {{rows, n}, Format::f32, alone.data()};
        std::vector<Act> acts;
        if (a.in_acts.data) quantize_input(one, acts);
        run_alone(*backend, MatMul{}, one);
        for (int64_t t = 0; t < rows; ++t)
          CHECK(!std::memcmp(all.data() + (t * e.op.heads + head) * n, alone.data() + t * n,
                             size_t(n) * sizeof(float)));
      }
    }
  }
}

TEST_CASE("op: expert_matmul gives the bits of matmul with that expert's weight") {
  std::vector<Example<ExpertMatMul>> examples = ExpertMatMul::examples();
  for (const Format f : {Format::q4_0, Format::f16})  // more than 64 rows choose one of the experts
    examples.push_back(
        {{2}, {{{150, 96}}, {{2 * 32, 96}, f, true}, Input{.shape = {150, 1}, .below = 2}}, 150});
  for (const Example<ExpertMatMul>& e : examples) {
    auto c = make_case(e, StateLayout{});
    const int64_t n = e.op.outputs(c->args), rows = c->args.in[0].shape.rows;
    std::vector<float> all(size_t(output_shapes(e.op, c->args)[0].rows * n)),
        alone(size_t(rows * n));
    for (const Backend* backend : cpu_backends()) {
      CAPTURE(backend->name);
      OpArgs a = c->args;
      a.out[0] = {output_shapes(e.op, a)[0], Format::f32, all.data()};
      run_alone(*backend, e.op, a);
      int64_t seen = 0;
      for (int expert = 0; expert < e.op.experts; ++expert) {
        OpArgs one = c->args;
        Operand& w = one.in[1];
        w.data = static_cast<std::byte*>(w.data) +
                 expert * n / kStrip * strip_bytes(w.format, w.shape.cols);
        w.shape.rows = n, one.n_in = e.op.bias ? 3 : 2;
        one.in[2] = c->args.in[3];
        if (e.op.bias) one.in[2].data = one.in[2].out_row(0) + expert * n, one.in[2].shape.cols = n;
        one.out[0] = {{rows, n}, Format::f32, alone.data()};
        run_alone(*backend, MatMul{1, e.op.bias}, one);
        for (int64_t row = 0; row < a.out[0].shape.rows; ++row)
          if (ExpertMatMul::expert_of(a, row) == expert) {
            ++seen;
            CHECK(!std::memcmp(a.out[0].row(row), one.out[0].row(ExpertMatMul::input_of(a, row)),
                               size_t(n) * sizeof(float)));
          }
      }
      CHECK(seen == a.out[0].shape.rows);
    }
  }
}

TEST_CASE("op: gated_expert_matmul gives the bits of its parts") {
  for (const Example<GatedExpertMatMul>& e : GatedExpertMatMul::examples()) {
    auto c = make_case(e, StateLayout{});
    const OpArgs gate = e.op.plain_args(c->args, 0), up = e.op.plain_args(c->args, 1);
    const Shape shape = output_shapes(e.op.plain(), gate)[0];
    const auto n = size_t(shape.rows * shape.cols);
    std::vector<float> gated(n), parts[2]{std::vector<float>(n), std::vector<float>(n)};
    for (const Backend* backend : cpu_backends()) {
      CAPTURE(backend->name);
      const auto run = [&](const auto& op, OpArgs a, std::vector<float>& to) {
        a.out[0] = {shape, Format::f32, to.data()};
        run_alone(*backend, op, a);
      };
      run(e.op, c->args, gated), run(e.op.plain(), gate, parts[0]), run(e.op.plain(), up, parts[1]);
      OpArgs each;
      for (size_t i = 0; i < 2; ++i) each.in[i] = {shape, Format::f32, parts[i].data()};
      each.n_in = e.op.clamped ? 2 : 1;
      if (e.op.clamped) {
        run(Binary{Binary::Kind::clamped_swiglu}, each, parts[0]);
      } else {
        run(Unary{e.op.kind}, each, parts[0]);
        for (size_t i = 0; i < n; ++i) parts[0][i] *= parts[1][i];
      }
      CHECK(gated == parts[0]);
    }
  }
}

TEST_CASE("op: quantized activations equal the reference's, bit for bit") {
  const auto e = QuantizeActs::examples()[1];
  auto c = make_case(e, StateLayout{});
  Outputs want = outputs_of(e.op, *c, [&](const OpArgs& a) { e.op.reference(a); });
  for (const Backend* backend : cpu_backends()) {
    const AnyOp op = e.op;
    const KernelEntry& k = backend->table[op.index()];
    Outputs got =
        outputs_of(e.op, *c, [&](const OpArgs& a) { k.run(op, a, 0, k.units(op, a), {}); });
    CHECK(std::memcmp(got.acts.data(), want.acts.data(), want.acts.size) == 0);
  }
}

// Includes NaN, which random weights never are.
TEST_CASE("op: every code of f8 on every instruction set") {
  alignas(64) std::byte codes[256];  // 16 strips of one column
  for (int i = 0; i < 256; ++i) codes[i] = std::byte(i);
  float one = 1, got[256];
  OpArgs a;
  a.in[0] = {{1, 1}, Format::f32, &one}, a.in[1] = {{256, 1}, Format::f8, codes, true},
  a.out[0] = {{1, 256}, Format::f32, got};
  for (const Backend* backend : cpu_backends()) {
    CAPTURE(backend->name);
    const AnyOp op = MatMul{};
    const KernelEntry& k = backend->table[op.index()];
    Buffer scratch(k.scratch(op, a));
    k.run(op, a, 0, k.units(op, a), {.own = scratch.data()});
    for (int i = 0; i < 256; ++i)
      CHECK((i % 128 == 127 ? std::isnan(got[i]) : got[i] == f32_of_f8(uint8_t(i))));
  }
}

// Products at the limits of their ranges: the int16 sums of the instruction sets without VNNI must
// not overflow.
TEST_CASE("op: matmul at the extremes of every block format") {
  const int64_t cols = 256;
  for (int f = 0; f < kFormatCount; ++f) {
    if (!reads_acts(Format(f))) continue;
    const FormatInfo& format = info(Format(f));
    for (unsigned char fill : {0x00, 0xFF, 0x80, 0x7F}) {
      for (float sign : {1.0f, -1.0f}) {
        std::vector<std::byte> row(row_bytes(Format(f), cols), std::byte{fill});
        // Scales must be finite: 0x3c gives 1.0 in the high byte of a half, wherever a block has
        // one.
        std::vector<std::byte> random(row.size());
        random_row(Format(f), 1, 1, cols, random.data());
        Formats::with(Format(f), [&]<class F>(F) {
          if constexpr (kHasHeader<F>) std::memcpy(row.data(), random.data(), kHeaderBytes<F>);
          if constexpr (!F::kFloat) {
            for (int64_t b = 0; b < cols / F::kBlock; ++b) {
              auto* to = reinterpret_cast<typename F::Block*>(row.data() + kHeaderBytes<F>) + b;
              if constexpr (requires { F::set_scale(*to, 1); })
                F::set_scale(*to, 1);
              else if constexpr (!kHasHeader<F>)
                to->d = reinterpret_cast<const typename F::Block*>(random.data())[b].d;
              if constexpr (requires { to->dmin; }) to->dmin = to->d;
              if constexpr (requires { to->m; }) to->m = to->d;
            }
          }
        });
        std::vector<std::byte> strip(strip_bytes(Format(f), cols) + 64);
        auto* tile = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(strip.data()) + 63) /
                                                  64 * 64);
        pack_strip(Format(f), row.data(), 0, 16, cols, tile);
        for (const int64_t tokens : {1, 17}) {
          std::vector<float> x(size_t(tokens * cols), sign);
          std::vector<Act> acts;
          OpArgs a;
          a.in[0] = {{tokens, cols}, Format::f32, x.data()};
          a.in[1] = {{16, cols}, Format(f), tile, true};
          quantize_input(a, acts);
          std::vector<float> want(size_t(tokens) * 16), got = want;
          a.out[0] = {{tokens, 16}, Format::f32, want.data()};
          MatMul{}.reference(a);
          a.out[0].data = got.data();
          for (const Backend* backend : cpu_backends()) {
            CAPTURE(backend->name);
            CAPTURE(format.name);
            CAPTURE(int(fill));
            CAPTURE(tokens);
            const AnyOp op = MatMul{};
            const KernelEntry& k = backend->table[op.index()];
            Buffer scratch(k.scratch(op, a));
            k.run(op, a, 0, 1, {.own = scratch.data()});
            CHECK(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0);
          }
        }
      }
    }
  }
}
