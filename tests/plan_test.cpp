// What fusing and planning do to a graph: fewer steps, shared memory, the same logits (those are
// exactness_test's and model_test's).
#include <map>

#include "engine/engine_impl.h"
#include "ggml-like-tensor/fuse.h"
#include "tests/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::map<std::string, int> counts(const Graph& g) {
  std::map<std::string, int> n;
  for (const Node& node : g.nodes) ++n[name_of(node.op)];
  return n;
}

Graph graph_of(EngineImpl& e, int tokens) {
  e.batch.tokens.assign(size_t(tokens), 0);
  e.batch.outputs = {tokens - 1};
  Graph g(e.batch);
  e.model->build(g);
  return g;
}

}  // namespace

TEST_CASE("plan: a llama layer of block formats is eight steps") {
  const auto engine = Engine::open({});
  Graph g = graph_of(engine->impl(), 1);
  const int layers = int(engine->impl().model->hyper.layers);
  const size_t before = g.nodes.size();
  fuse(g);
  auto n = counts(g);
  CHECK(n["matmul"] == 3 * layers + 1);  // q+k+v, output, down; the head
  CHECK(n["gated_matmul"] == layers);
  CHECK(n["norm"] == 2 * layers + 1);
  CHECK(n["kv_write"] == layers);  // rotates q and k
  CHECK(n["attention"] == layers);
  CHECK(n["rope"] + n["unary"] + n["quantize_acts"] == 0);
  CHECK(n["binary"] == 1);  // the last residual; the others are the norms'
  CHECK(int(g.nodes.size()) == 8 * layers + 5);
  MESSAGE(before << " nodes become " << g.nodes.size());
}

TEST_CASE("plan: float models keep their activations, and a layer of gpt2 its biases") {
  EngineOptions o;
  o.model = golden("models/gpt2");
  const auto engine = Engine::open(o);
  Graph g = graph_of(engine->impl(), 3);
  fuse(g);
  auto n = counts(g);
  const int layers = int(engine->impl().model->hyper.layers);
  CHECK(n["quantize_acts"] == 0);
  CHECK(n["matmul"] == 4 * layers + 1);  // q+k+v, output, up, down
  CHECK(n["unary"] == layers);
  for (const Node& node : g.nodes)
    if (const auto* m = std::get_if<MatMul>(&node.op); m && m->weights == 3)
      CHECK(node.in.size() == 7);
}

TEST_CASE("plan: values share one arena, and none that is alive is overwritten") {
  const auto engine = Engine::open({});
  EngineImpl& e = engine->impl();
  Plan plan(graph_of(e, 16), cpu_backend(), e.batch);
  size_t sum = 0;
  for (const GraphValue& v : plan.graph().values)
    if (!v.weight) sum += size_t(v.shape.rows * v.shape.cols) * 4;
  CHECK(plan.arena_bytes() < sum / 4);
  AlignedBytes arena;
  arena.grow(plan.arena_bytes());
  plan.bind(arena.data());
  // No output of a step overlaps an input of the same step.
  for (const Step& s : plan.steps)
    for (const Operand& out : s.args.out)
      for (int i = 0; i < s.args.n_in; ++i) {
        const Operand& in = s.args.in[i];
        if (!out.data || !in.data || in.weight) continue;
        const auto *a = static_cast<const float*>(out.data),
                   *b = static_cast<const float*>(in.data);
        const bool apart =
            a + out.shape.rows * out.shape.cols <= b || b + in.shape.rows * in.shape.cols <= a;
        CHECK(apart);
      }
}

TEST_CASE("plan: the text of a graph names ops, shapes and weights") {
  const auto engine = Engine::open({});
  Graph g = graph_of(engine->impl(), 2);
  const std::string text = to_text(g);
  CHECK(text.find("0 get_rows  token_embd (3072, 192) q8  ->  %1 (2, 192)\n") == 0);
  fuse(g);
  CHECK(to_text(g).find("gated_matmul") != std::string::npos);
}
