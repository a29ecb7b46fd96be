// A layer of an encoder model (scratch_model.h). Its attention covers all tokens of the pass,
// earlier and later ones, and keeps no state.
#include <cstring>

#include "engine/session/engine.h"
#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/executor.h"
#include "ggml-like-tensor/reading.h"
#include "tests/kit/op_support.h"
#include "tests/kit/scratch_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

using Values = std::vector<float>;
using Mask = Attention::Mask;

struct Encoder {
  TempFolder folder;
  std::shared_ptr<Engine> engine;
  const ScratchModel* model;

  Encoder() {
    EngineOptions o;
    o.model = write_scratch_model(folder / "scratch.quipu"), o.device = "cpu";
    engine = Engine::open(o);
    model = static_cast<const ScratchModel*>(&engine->model());
  }
  // Uses the weights of the layer without a window. `pages`: keys and values go through pages.
  void build(Graph& g, Mask mask, bool pages) const {
    const ScratchModel::Layer& l = model->layers[2];
    const Paged kv = model->kept(2);
    const int heads = int(model->heads[2]);
    RopeSpec rope;
    rope.dim = 16;
    const ValueId x = g.get_rows(*model->embedding.weight),
                  n = g.rms_norm(x, *l.norm.weight, 1e-5f),
                  q = g.rope(g.matmul(n, *l.q.weight), heads, kv.k_dim, rope),
                  k = g.rope(g.matmul(n, *l.k.weight), kv.heads, kv.k_dim, rope),
                  v = g.matmul(n, *l.v.weight);
    Attention about;
    about.kv = kv, about.scale = 0.1f, about.mask = mask;
    if (pages) about.state = g.state(kv), g.kv_write(about.state, k, v);
    const ValueId seen = pages ? g.attention(q, about) : g.attention(q, k, v, about);
    const ValueId y = g.add(x, g.matmul(seen, *l.out.weight)),
                  m = g.rms_norm(y, *l.ffn_norm.weight, 1e-5f);
    g.set_result(
        g.add(y, g.matmul(g.mul(g.silu(g.matmul(m, *l.gate.weight)), g.matmul(m, *l.up.weight)),
                          *l.down.weight)));
  }
  // The outputs (tokens, width) of all texts, in one pass.
  Values run(const std::vector<std::vector<int32_t>>& texts, Mask mask,
             const Backend& backend = cpu_backend(), bool pages = false) const {
    Batch b;
    std::vector<std::vector<int32_t>> tables;
    int32_t page = 0;
    for (size_t s = 0; s < texts.size(); ++s) {
      tables.emplace_back();
      for (size_t i = 0; i < texts[s].size(); ++i) {
        if (i % kPage == 0) tables[s].push_back(page++);
        b.tokens.push_back(texts[s][i]), b.sequences.push_back(int32_t(s));
        b.positions.push_back(int32_t(i)), b.cells.push_back(int32_t(i));
      }
    }
    Graph g(b);
    build(g, mask, pages);
    PassContext where{StateLayout(g.states, Format::f32, false), {}};
    std::vector<std::byte> memory(size_t(whole_groups(page)) * where.states.page_bytes());
    where.states.place({{memory.data()}});
    Values angles;
    g.ropes[0].append(angles, 0, 1000);
    where.ropes = {angles.data()};
    b.tables.resize(where.states.pools.size()), b.stores.resize(b.tables.size());
    for (auto& of_pool : b.tables)
      for (const auto& t : tables) of_pool.push_back(t.data());
    for (size_t pool = 0; pool < b.stores.size(); ++pool) b.stores[pool] = stores_of(b, pool);
    plan_readings(b, where.states.pools);
    Plan plan(std::move(g), backend, b, where);
    Executor executor(2, true);
    executor.run(plan);
    return {plan.result(), plan.result() + b.size() * model->width};
  }
};

std::vector<int32_t> text(int n, int seed) {
  std::vector<int32_t> t;
  for (int i = 0; i < n; ++i) t.push_back((i * i * 7 + 3 * i + seed) % ScratchModel::kVocab);
  return t;
}

// The values of one token.
Values row(const Values& all, int64_t width, int64_t t) {
  return {all.begin() + t * width, all.begin() + (t + 1) * width};
}

}  // namespace

TEST_CASE("encoder: a text has the same values alone and in a batch, on every instruction set") {
  const Encoder encoder;
  const auto a = text(300, 1), b = text(17, 2), c = text(1, 3);
  Values first;
  for (const Backend* backend : cpu_backends()) {
    CAPTURE(backend->name);
    const Values all = encoder.run({a, b, c}, Mask::full, *backend);
    if (first.empty()) first = all;
    CHECK(all == first);
    Values each;
    for (const auto& one : {a, b, c}) {
      const Values alone = encoder.run({one}, Mask::full, *backend);
      each.insert(each.end(), alone.begin(), alone.end());
    }
    CHECK(each == all);
  }
}

TEST_CASE("encoder: every token sees the last one, and with a causal mask no later one") {
  const Encoder encoder;
  const int64_t width = encoder.model->width;
  const auto before = text(300, 1);
  auto after = before;
  after.back() ^= 1;
  for (const Mask mask : {Mask::full, Mask::causal}) {
    const Values x = encoder.run({before}, mask), y = encoder.run({after}, mask);
    for (int t = 0; t < 300; ++t)
      CHECK((row(x, width, t) == row(y, width, t)) == (mask == Mask::causal && t < 299));
  }
}

TEST_CASE("encoder: over the batch or over f32 pages attention has the same bits") {
  const Encoder encoder;
  const std::vector<std::vector<int32_t>> one{text(300, 1)},
      three{text(9, 1), text(280, 2), text(40, 5)};
  for (const Mask mask : {Mask::full, Mask::causal})
    for (const auto* texts : {&one, &three})
      CHECK(encoder.run(*texts, mask) == encoder.run(*texts, mask, cpu_backend(), true));
}
