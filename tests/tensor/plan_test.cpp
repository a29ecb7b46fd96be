// What fusing and planning change in a graph: fewer steps and shared memory. exactness_test and
// model_test check that logits stay the same.
#include <map>

#include "engine/passes/pipeline.h"
#include "engine/passes/plan_cache.h"
#include "engine/session/engine.h"
#include "ggml-like-tensor/fuse.h"
#include "ggml-like-tensor/split.h"
#include "tests/kit/import_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::map<std::string, int> counts(const Graph& g) {
  std::map<std::string, int> n;
  for (const Node& node : g.nodes) ++n[name_of(node.op)];
  return n;
}

Graph graph_of(Engine& e, int tokens) {
  e.pipeline().batch.tokens.assign(size_t(tokens), 0);
  e.pipeline().batch.outputs = {tokens - 1};
  Graph g(e.pipeline().batch);
  e.model().build(g);
  return g;
}

}  // namespace

TEST_CASE("plan: a llama layer of block formats is eight steps") {
  const auto engine = Engine::open({});
  Graph g = graph_of(*engine, 1);
  const int layers = int(engine->model().n_layers);
  const size_t before = g.nodes.size();
  fuse(g);
  auto n = counts(g);
  CHECK(n["matmul"] == 3 * layers + 1);  // q+k+v, output, down; the head
  CHECK(n["gated_matmul"] == layers);
  CHECK(n["norm"] == 2 * layers + 1);
  CHECK(n["kv_write"] == layers);  // rotates q and k
  CHECK(n["attention"] == layers);
  CHECK(n["rope"] + n["unary"] + n["quantize_acts"] == 0);
  CHECK(n["binary"] == 1);  // the last residual; the norms add the others
  CHECK(int(g.nodes.size()) == 8 * layers + 5);
  MESSAGE(before << " nodes become " << g.nodes.size());
}

TEST_CASE("plan: float models keep their activations, and a layer of gpt2 its biases") {
  EngineOptions o;
  o.model = golden("models/gpt2");
  const auto engine = Engine::open(o);
  Graph g = graph_of(*engine, 3);
  fuse(g);
  auto n = counts(g);
  const int layers = int(engine->model().n_layers);
  CHECK(n["quantize_acts"] == 0);
  CHECK(n["matmul"] == 4 * layers + 1);  // q+k+v, output, up, down
  CHECK(n["unary"] == layers);
  for (const Node& node : g.nodes)
    if (const auto* m = std::get_if<MatMul>(&node.op); m && m->weights == 3)
      CHECK(node.in.size() == 7);
}

TEST_CASE("plan: kv_write rotates the query that attention over these keys reads") {
  const auto engine = Engine::open({});
  Engine& e = *engine;
  graph_of(e, 1);
  const int heads = int(e.meta().integer("model.head_count")),
            kv_heads = int(e.meta().integer("model.head_count_kv")),
            head_dim = int(e.meta().integer("model.head_dim"));
  RopeSpec rope;
  rope.dim = head_dim;
  const auto weight = [&](const char* name) -> const Weight& {
    return *e.weights()->find(std::string("layer.0.") + name);
  };
  Graph g(e.pipeline().batch);
  const StateId kv = g.state(Paged{kv_heads, head_dim, head_dim, 0});
  const ValueId x = g.get_rows(*e.weights()->find("token_embd"));
  const ValueId q = g.rope(g.matmul(x, weight("attn_q")), heads, head_dim, rope),
                k = g.rope(g.matmul(x, weight("attn_k")), kv_heads, head_dim, rope),
                v = g.matmul(x, weight("attn_v")),
                another = g.rope(g.matmul(x, weight("attn_q")), heads, head_dim, rope);
  g.kv_write(kv, k, v);
  g.set_result(g.add(g.attention(q, kv, 1), another));
  fuse(g);
  CHECK(counts(g)["rope"] == 1);
  for (const Node& node : g.nodes)
    if (std::holds_alternative<KvWrite>(node.op)) CHECK(node.out == std::vector<ValueId>{q});
}

TEST_CASE("plan: values share one arena, and none that is still needed is overwritten") {
  const auto engine = Engine::open({});
  Engine& e = *engine;
  Plan plan(graph_of(e, 16), cpu_backend(), e.pipeline().batch,
            e.pipeline().whole_on_cpu()->context());
  size_t sum = 0;
  for (const GraphValue& v : plan.graph().values)
    if (!v.weight) sum += size_t(v.shape.rows * v.shape.cols) * 4;
  CHECK(plan.arena_bytes() < sum / 4);
  AlignedBytes arena;
  arena.grow(plan.arena_bytes());
  plan.bind(arena.data());
  // What a step writes must not overlap anything written earlier that is read at this step or
  // later, nor anything else of the step.
  struct Place {
    std::uintptr_t begin, end;
    size_t made, last;
  };
  std::map<ValueId, Place> places;
  const std::vector<Node>& nodes = plan.graph().nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const OpArgs& a = plan.steps[i].args;
    const auto make = [&](ValueId v, const void* data, size_t bytes) {
      if (v == kNone) return;
      const auto at = reinterpret_cast<std::uintptr_t>(data);
      places[v] = {at, at + bytes, i, v == plan.graph().result ? nodes.size() : i};
    };
    for (size_t k = 0; k < nodes[i].out.size(); ++k)
      make(nodes[i].out[k], a.out[k].data,
           size_t(a.out[k].shape.rows * a.out[k].shape.cols) * sizeof(float));
    make(nodes[i].acts, a.acts.data, size_t(a.acts.rows * a.acts.blocks) * sizeof(Act));
    for (size_t k = 0; k < nodes[i].in.size(); ++k)
      if (const auto p = places.find(nodes[i].in[k]); p != places.end() && a.in[k].data)
        p->second.last = i;
    if (nodes[i].in_acts != kNone) places.at(nodes[i].in_acts).last = i;
  }
  CHECK(places.size() > nodes.size());
  int shared = 0;
  for (const auto& [v, later] : places)
    for (const auto& [w, earlier] : places) {
      if (v == w || earlier.made > later.made) continue;
      const bool apart = earlier.end <= later.begin || later.end <= earlier.begin;
      CHECK((apart || earlier.last < later.made));
      shared += !apart;
    }
  CHECK(shared > 0);
}

TEST_CASE("plan: the text of a graph names ops, shapes and weights") {
  const auto engine = Engine::open({});
  Graph g = graph_of(*engine, 2);
  const std::string text = to_text(g);
  CHECK(text.find("0 get_rows  token_embd (3072, 192) q8  ->  %1 (2, 192)\n") == 0);
  fuse(g);
  CHECK(to_text(g).find("gated_matmul") != std::string::npos);
}

// A rewrite that searched the whole graph for its neighbours took hours for these layers.
TEST_CASE("plan: the time to fuse grows only linearly with the graph") {
  const int layers = 100'000;
  const auto engine = Engine::open({});
  Engine& e = *engine;
  Graph g = graph_of(e, 1);
  const auto weight = [&](const char* name) {
    return *e.weights()->find(std::string("layer.0.") + name);
  };
  const Weight norm = weight("attn_norm"), q = weight("attn_q"), k = weight("attn_k"),
               v = weight("attn_v"), o = weight("attn_output"), gate = weight("ffn_gate"),
               up = weight("ffn_up"), down = weight("ffn_down");
  const int heads = int(e.meta().integer("model.head_count")),
            kv_heads = int(e.meta().integer("model.head_count_kv")),
            head_dim = int(e.meta().integer("model.head_dim"));
  RopeSpec rope;
  rope.dim = head_dim;
  Graph deep(e.pipeline().batch);
  const StateId kv = deep.state(Paged{kv_heads, head_dim, head_dim, 0});
  ValueId x = deep.get_rows(*e.weights()->find("token_embd"));
  for (int i = 0; i < layers; ++i) {
    const ValueId n = deep.rms_norm(x, norm, 1e-5f);
    const ValueId at_q = deep.matmul(n, q), at_k = deep.matmul(n, k), at_v = deep.matmul(n, v);
    const ValueId turned = deep.rope(at_q, heads, head_dim, rope);
    deep.kv_write(kv, deep.rope(at_k, kv_heads, head_dim, rope), at_v);
    x = deep.add(x, deep.matmul(deep.attention(turned, kv, 1), o));
    const ValueId m = deep.rms_norm(x, norm, 1e-5f);
    const ValueId act = deep.silu(deep.matmul(m, gate));
    x = deep.add(x, deep.matmul(deep.mul(act, deep.matmul(m, up)), down));
  }
  deep.set_result(x);
  fuse(deep);
  CHECK(int(deep.nodes.size()) == 8 * layers + 2);
  CHECK(weights_of(deep).size() == 9);
  CHECK(split(deep, 0).first.nodes.size() == 1);
}

// Except those whose layers share more than the residual stream, run several times or have no
// weights.
TEST_CASE("plan: every architecture can be cut before each of its layers") {
  for (const std::string& model : golden_models()) {
    CAPTURE(model);
    EngineOptions o;
    o.model = model, o.threads = 1;
    const auto engine = Engine::open(o);
    const Graph whole = graph_of(*engine, 3);
    const std::string name = std::filesystem::path(model).filename();
    const bool shares = name.starts_with("gemma4") || name == "gemma3n" || name == "nanbeige" ||
                        name.starts_with("rwkv7");  // the values of its first layer
    for (int i = 0; i < int(engine->model().n_layers); ++i) {
      CHECK((can_split(whole, i) || (shares && i > 0) || (name == "deci" && i == 4) ||
             (name == "glm_dsa" && i == 1)));
      if (!can_split(whole, i)) continue;
      const SplitGraph parts = split(whole, i);
      CHECK(parts.first.nodes.size() + parts.rest.nodes.size() == whole.nodes.size());
    }
  }
}

// Every tensor was once looked up by a search through all, which took 15 s before the first token.
TEST_CASE("plan: a model of 4096 tiny layers opens and runs") {
  Gguf g = tiny_llama();
  const auto layer = g.tensors;
  g.drop("llama.block_count").u32("llama.block_count", 4096);
  for (int i = 1; i < 4096; ++i)
    for (Gguf::Tensor t : layer)
      if (t.name.starts_with("blk.0."))
        g.tensor(t.name.replace(4, 1, std::to_string(i)), t.ne, t.type, t.data);
  const TempFolder temp;
  EngineOptions o;
  o.model = write_file(temp / "deep.gguf", g.build());
  o.threads = 1;
  const auto engine = Engine::open(o);
  Graph whole = graph_of(*engine, 1);
  fuse(whole);
  CHECK(whole.nodes.size() > 4096 * 8);
}

// It once took 268 MB of reference counts, for a file of two kilobytes.
TEST_CASE("plan: a context that a file only declares takes no memory") {
  KvPool pool(int64_t(1) << 40, [](int32_t, int32_t) {});
  CHECK(pool.size() == int64_t(1) << 40);
  const int32_t first = pool.take(), second = pool.take();
  CHECK(first != second);
  pool.release(first);
  CHECK(pool.in_use() == 1);
  CHECK(pool.take() == first);
}

TEST_CASE("plan cache: prompts of many lengths evict the least recently used plans") {
  PlanCache<int> cache;
  int made = 0;
  const auto asked_for = [&](int tokens, int outputs) {
    Batch batch;
    batch.tokens.resize(size_t(tokens)), batch.outputs.resize(size_t(outputs));
    cache.get(batch, Result::logits, Network::decoder,
              [&] { return std::make_unique<int>(++made); });
  };
  const auto is_kept = [&](int tokens, int outputs) {
    const int before = made;
    asked_for(tokens, outputs);
    return made == before;
  };
  asked_for(1, 1);  // a decode step
  asked_for(5, 5);  // a verification pass of draft tokens
  for (int length = 100; length < 300; ++length) {
    asked_for(length, 1);
    asked_for(5, 5);
  }
  CHECK(is_kept(1, 1));
  CHECK(is_kept(5, 5));
  CHECK(is_kept(299, 1));
  CHECK(is_kept(280, 1));
  CHECK(!is_kept(100, 1));
}
