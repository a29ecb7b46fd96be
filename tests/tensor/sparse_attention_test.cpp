// The lightning indexer and attention over the cells that it chooses.
#include "ggml-like-tensor/backend.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::vector<int32_t> chosen_of(const LightningIndex& op, const std::vector<float>& scores) {
  std::vector<int32_t> chosen(size_t(op.most));
  op.choose(scores.data(), int64_t(scores.size()), chosen.data());
  return chosen;
}

// Runs every unit by itself, the last ones first.
template <class Op>
Outputs outputs_on(const Backend& backend, const Op& op, Case& c) {
  return outputs_of(op, c, [&](const OpArgs& a) {
    const AnyOp any = op;
    const KernelEntry& k = backend.table[any.index()];
    Buffer scratch(k.scratch(any, a)), shared(k.shared(any, a));
    std::vector<uint32_t> counters(kSharedCounters);
    for (int64_t u = k.units(any, a) - 1; u >= 0; --u)
      k.run(any, a, u, u + 1, {scratch.data(), counters.data(), shared.data()});
    CHECK(counters == std::vector<uint32_t>(kSharedCounters));
  });
}

// Each token alone must get the row that it has in the whole batch.
template <class Op>
void expect_same_alone(const Op& op, Case& c) {
  for (const Backend* backend : cpu_backends()) {
    CAPTURE(backend->name);
    Outputs together = outputs_on(*backend, op, c);
    const size_t row = together.floats[0].size / size_t(c.batch.size());
    Case one;
    one.where = c.where, one.args = c.args, one.args.where = &one.where;
    for (int64_t t = 0; t < c.batch.size(); ++t) {
      one.batch = c.batch;
      one.batch.tokens = {0}, one.batch.cells = {c.batch.cells[size_t(t)]},
      one.batch.sequences = {c.batch.sequences[size_t(t)]};
      plan_readings(one.batch, one.where.states.pools);
      one.args.batch = &one.batch;
      for (int i = 0; i < 2; ++i) {
        one.args.in[i].shape.rows = 1;
        one.args.in[i].data = const_cast<float*>(c.args.in[i].row(t));
      }
      Outputs alone = outputs_on(*backend, op, one);
      CHECK(!std::memcmp(alone.floats[0].data(), together.floats[0].data() + size_t(t) * row, row));
    }
  }
}

}  // namespace

TEST_CASE("sparse attention: the largest scores are chosen; of equal scores the earlier cell") {
  using Cells = std::vector<int32_t>;
  LightningIndex op;
  op.most = 3;
  CHECK(chosen_of(op, {4}) == Cells{0, -1, -1});
  CHECK(chosen_of(op, {1, 2, 3}) == Cells{0, 1, 2});
  CHECK(chosen_of(op, {1, 2, 3, 2}) == Cells{1, 2, 3});
  CHECK(chosen_of(op, {5, 1, 2, 2, 2, 7}) == Cells{0, 2, 5});
  CHECK(chosen_of(op, {0, -0.0f, 0, -0.0f, 0}) == Cells{0, 1, 2});
  CHECK(chosen_of(op, {-1, -2, -0.5f, -1, 1e-30f}) == Cells{0, 2, 4});
  CHECK(chosen_of(op, {9, 8, 7, NAN, 6}) == Cells{0, 1, 3});
  // Many equal numbers, against a stable sort.
  std::vector<float> scores;
  for (uint32_t i = 0; i < 2000; ++i) scores.push_back(std::floor(20 * noise(i)) / 8);
  for (const int most : {1, 7, 100, 1024, 1999}) {
    op.most = most;
    Cells order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t i, int32_t j) { return scores[size_t(i)] > scores[size_t(j)]; });
    order.resize(size_t(most));
    std::sort(order.begin(), order.end());
    CHECK(chosen_of(op, scores) == order);
  }
}

// A batch of 40 tokens has a unit for each token. A single token has one for each chunk of cells,
// and for 16 heads.
TEST_CASE("sparse attention: a token chooses the same cells and gets the same bits alone") {
  const Example<LightningIndex> index{
      {0, 20, {1, 64, 0, 0, true}, 100}, {{{40, 1280}}, {{40, 20}}}, 40};
  for (const StateLayout& layout : layouts_of(index.op))
    expect_same_alone(index.op, *make_case(index, layout));
  const Example<SparseAttention> sparse{{0, 40, {1, 64, 32, 0, true}, 0.2f},
                                        {{{40, 2560}}, Input{.shape = {40, 17}, .below = 26}},
                                        40};
  for (const StateLayout& layout : layouts_of(sparse.op))
    expect_same_alone(sparse.op, *make_case(sparse, layout));
}

TEST_CASE("sparse attention: over all cells it has the bits of attention") {
  const Paged kv{2, 64, 32, 0, true};
  for (const int64_t tokens : {2, 40}) {
    const Example<Attention> plain{{0, 36, kv, 0.2f}, {{{tokens, 36 * 64}}}, tokens};
    const Example<SparseAttention> sparse{
        {0, 36, kv, 0.2f},
        {{{tokens, 36 * 64}}, Input{.shape = {tokens, 600}, .below = 5}},
        tokens};
    for (const StateLayout& layout : layouts_of(plain.op)) {
      CAPTURE(info(format_of(layout)).name);
      auto a = make_case(plain, layout), b = make_case(sparse, layout);
      for (const Backend* backend : cpu_backends()) {
        Outputs want = outputs_on(*backend, plain.op, *a),
                got = outputs_on(*backend, sparse.op, *b);
        CHECK(!std::memcmp(want.floats[0].data(), got.floats[0].data(), want.floats[0].size));
        CHECK(!std::memcmp(want.acts.data(), got.acts.data(), want.acts.size));
      }
      // Copied cell by cell they give the same bits too.
      const KvView& view = b->where.states.paged[0];
      std::vector<int32_t> cells(100);
      std::iota(cells.begin(), cells.end(), 0);
      const size_t page = view.layout.k_bytes();
      std::vector<std::byte> copies(7 * page);
      SparseAttention::gather(view, 1, b->table.data(), cells.data(), 100, copies.data());
      for (int i = 0; i < 6; ++i)
        CHECK(!std::memcmp(copies.data() + size_t(i) * page, view.keys(1, b->table[size_t(i)]),
                           page));
    }
  }
}
