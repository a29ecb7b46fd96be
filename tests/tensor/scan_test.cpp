// The ops with a recurrent state: where a sequence begins, and its tokens in any passes.
#include "ggml-like-tensor/backend.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// Tokens [first, end) of a case as a pass of their own; the states stay where they are. Returns the
// rows of its outputs.
template <class Op>
std::vector<float> pass(const Backend& backend, const Op& op, Case& c, int64_t first, int64_t end) {
  const int64_t all = c.batch.size();
  Batch part = c.batch;
  const auto cut = [&](std::vector<int32_t>& list) {
    list = {list.begin() + first, list.begin() + end};
  };
  cut(part.tokens), cut(part.positions), cut(part.cells), cut(part.sequences);
  OpArgs a = c.args;
  a.batch = &part;
  for (int i = 0; i < a.n_in; ++i)
    if (a.in[i].shape.rows == all && !a.in[i].weight)
      a.in[i].data = a.in[i].out_row(first), a.in[i].shape.rows = end - first;
  const std::vector<Shape> shapes = output_shapes(op, a);
  std::vector<std::vector<float>> outs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    outs.emplace_back(size_t(shapes[i].rows * shapes[i].cols));
    a.out[i] = {shapes[i], Format::f32, outs[i].data()};
  }
  const AnyOp any = op;
  const KernelEntry& k = backend.table[any.index()];
  Buffer scratch(k.scratch(any, a));
  k.run(any, a, 0, k.units(any, a), {.own = scratch.data()});
  std::vector<float> rows;  // of all outputs, token by token
  for (int64_t t = 0; t < end - first; ++t)
    for (const Operand& out : std::span(a.out).first(shapes.size()))
      rows.insert(rows.end(), out.row(t), out.row(t) + out.shape.cols);
  return rows;
}

// One sequence of 40 tokens from its beginning. The memory of its state is what another sequence
// left there, or not a number.
template <class Op>
void expect_same_in_any_passes(const Example<Op>& e) {
  constexpr int64_t kTokens = 40;
  Example<Op> longer = e;
  longer.tokens = kTokens;
  for (Input& in : longer.in)
    if (!in.weight) in.shape.rows = kTokens;
  const StateLayout layout = layouts_of(e.op)[0];
  for (const Backend* backend : cpu_backends()) {
    CAPTURE(Op::kName);
    CAPTURE(backend->name);
    std::vector<float> whole;
    for (const int64_t size : {kTokens, int64_t{1}, int64_t{7}, int64_t{16}}) {
      auto c = make_case(longer, layout);
      for (int64_t t = 0; t < kTokens; ++t)
        c->batch.cells[size_t(t)] = int32_t(t), c->batch.sequences[size_t(t)] = 0;
      if (size == 7) std::fill(c->pages.begin(), c->pages.end(), std::byte{0xFF});  // NaN
      std::vector<float> rows;
      for (int64_t t = 0; t < kTokens; t += size) {
        const auto some = pass(*backend, e.op, *c, t, std::min(t + size, kTokens));
        rows.insert(rows.end(), some.begin(), some.end());
      }
      if (whole.empty()) whole = rows;
      CHECK(!std::memcmp(rows.data(), whole.data(), whole.size() * sizeof(float)));
      CHECK(std::isfinite(rows.back()));
    }
  }
}

}  // namespace

TEST_CASE("scan: a sequence begins without a past, and has the same bits in any passes") {
  Ops::each([]<class Op>(Op) {
    if constexpr (requires(Op op) { op.kept(); })
      for (const Example<Op>& e : Op::examples()) expect_same_in_any_passes(e);
  });
}
