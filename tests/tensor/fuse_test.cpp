// Fusing changes time, never a bit: a graph as the model wrote it and the fused graph give the same
// numbers. Also tests graphs with values that are not floats.
#include <algorithm>
#include <cstring>

#include "engine/passes/pipeline.h"
#include "engine/session/engine.h"
#include "engine/session/session.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::vector<float> result_of(const Plan& plan) {
  const Shape s = plan.result_shape();
  return {plan.result(), plan.result() + s.rows * s.cols};
}

// Repeats the last pass of the engine with the graph as the model wrote it. Keys and values are
// written to the same places again.
std::vector<float> unfused(Engine& e) {
  Graph g(e.pipeline().batch);
  e.model().build(g);
  Plan plan(std::move(g), cpu_backend(), e.pipeline().batch, e.pipeline().whole_on_cpu()->context(),
            Fuse::none);
  Executor executor(2);
  executor.run(plan);
  return result_of(plan);
}

// Whether every value is made before it is read.
bool in_order(const Graph& g) {
  std::vector<bool> made(g.values.size());
  for (size_t v = 0; v < g.values.size(); ++v)
    made[v] = g.values[v].weight || ValueId(v) == g.input;
  for (const Node& n : g.nodes) {
    for (ValueId v : n.in)
      if (!made[size_t(v)]) return false;
    for (ValueId v : n.out)
      if (v != kNone) made[size_t(v)] = true;
  }
  return true;
}

}  // namespace

TEST_CASE("fuse: logits equal those of the graph as the model wrote it, bit for bit") {
  for (const char* model : {"models/llama_gqa_untied", "models/mistral_window", "models/gpt2",
                            "gguf/tiny_llama_q4_0.gguf", "gguf/tiny_llama_mixed.gguf", ""})
    for (const Format kv : {Format::f16, Format::q4_0}) {
      CAPTURE(model);
      CAPTURE(info(kv).name);
      EngineOptions o;
      o.model = *model ? golden(model) : "", o.kv = kv, o.device = "cpu", o.threads = 2;
      const auto engine = Engine::open(o);
      const auto session = engine->session();
      std::vector<TokenId> tokens;
      for (int i = 0; i < 20; ++i) tokens.push_back(TokenId((7 * i + 3) % engine->vocab_size()));
      const auto whole = session->extend(tokens, 5);
      CHECK(same(unfused(*engine), whole));
      const auto next = session->extend(std::vector<TokenId>{11});
      CHECK(same(unfused(*engine), next));
    }
}

TEST_CASE("fuse: kv_write rotates the query of the attention after it, and no other") {
  const auto engine = Engine::open({});
  Engine& e = *engine;
  e.pipeline().batch.tokens.assign(3, 0), e.pipeline().batch.outputs = {2};
  Graph model(e.pipeline().batch);
  e.model().build(model);
  const Paged kv = std::get<Paged>(model.states[0]);
  const RopeSpec rope = model.ropes[0];
  const auto weight = [&](const char* name) {
    return e.weights()->find(std::string("layer.0.") + name);
  };
  const int heads = int(weight("attn_q")->info.rows / kv.k_dim);
  Graph g(e.pipeline().batch);
  const StateId state = g.state(kv);
  const ValueId x =
      g.rms_norm(g.get_rows(*e.weights()->find("token_embd")), *weight("attn_norm"), 0);
  const ValueId q = g.matmul(x, *weight("attn_q")), k = g.matmul(x, *weight("attn_k")),
                v = g.matmul(x, *weight("attn_v"));
  const ValueId turned_q = g.rope(q, heads, kv.k_dim, rope);
  const ValueId other = g.rope(x, heads, kv.k_dim, rope);  // not the query of any attention
  const ValueId sum = g.add(other, x);
  g.kv_write(state, g.rope(k, kv.heads, kv.k_dim, rope), v);
  g.set_result(g.add(sum, g.attention(turned_q, state, 1)));
  fuse(g);
  CHECK(in_order(g));
  int ropes = 0;
  for (const Node& n : g.nodes) {
    ropes += std::holds_alternative<Rope>(n.op);
    if (const auto* write = std::get_if<KvWrite>(&n.op)) {
      REQUIRE(write->rope);
      CHECK(n.in[2] == q);
      CHECK(n.out[0] == turned_q);
    }
  }
  CHECK(ropes == 1);  // `other`
}

namespace {

// clamped: with gpt-oss's gate, and biases.
void check_mixture(Format gate_format, Format up_format, bool clamped = false) {
  const int64_t tokens = 9, dim = 64, ffn = 96;
  const int experts = 5, chosen = 2;
  Batch batch;
  const PassContext where;
  batch.tokens.assign(size_t(tokens), 0);
  std::vector<Buffer> data;
  std::vector<Weight> weights;
  for (const auto& [format, rows, cols] : {std::tuple{Format::f32, int64_t(experts), dim},
                                           {gate_format, experts * ffn, dim},
                                           {up_format, experts * ffn, dim},
                                           {Format::q4_0, experts * dim, ffn}}) {
    data.push_back(random_weight(format, {rows, cols}));
    weights.push_back({{"w", format, rows, cols}, data.back().data()});
  }
  for (int i = 0; i < 2; ++i) {
    data.emplace_back(size_t(experts * ffn) * sizeof(float));
    for (int64_t k = 0; k < experts * ffn; ++k) data.back().floats()[k] = noise(uint32_t(k + i));
    weights.push_back({{"b", Format::f32, 1, experts * ffn}, data.back().data()});
  }
  const auto graph = [&] {
    Graph g(batch);
    g.values.push_back({{tokens, dim}});
    const ValueId x = g.input = 0;
    const auto [which, scores] = g.top_k(g.matmul(x, weights[0]), chosen);
    CHECK(g.values[size_t(which)].kind == ValueKind::i32);
    const ValueId share = g.soft_max(scores, 1);
    const auto inner = [&](size_t i) {
      return g.expert_matmul(x, weights[i], experts, which, clamped ? &weights[i + 3] : nullptr);
    };
    const ValueId gate = inner(1), up = inner(2);
    const ValueId h = clamped ? g.clamped_swiglu(gate, up) : g.mul(g.silu(gate), up);
    const ValueId y = g.expert_matmul(h, weights[3], experts, which);
    g.set_result(g.add(x, g.mix(y, share)));
    return g;
  };
  CHECK(to_text(graph()).find(" i32 ") != std::string::npos);

  const auto fill = [&](Plan& plan) {
    for (int64_t i = 0; i < tokens * dim; ++i) plan.input()[i] = noise(uint32_t(i));
  };
  std::vector<float> first;
  for (const Backend* backend : cpu_backends())
    for (const Fuse which : {Fuse::all, Fuse::none}) {
      CAPTURE(backend->name);
      Plan plan(graph(), *backend, batch, where, which);
      AlignedBytes arena;
      arena.grow(plan.arena_bytes());
      plan.bind(arena.data());
      fill(plan);
      for (const Step& s : plan.steps) {
        Buffer scratch(s.kernel->scratch(s.op, s.args));
        s.kernel->run(s.op, s.args, 0, s.kernel->units(s.op, s.args), {.own = scratch.data()});
      }
      if (first.empty()) first = result_of(plan);
      CHECK(same(first, result_of(plan)));
      const auto gated = std::ranges::count_if(plan.steps, [](const Step& s) {
        return std::holds_alternative<GatedExpertMatMul>(s.op);
      });
      CHECK(gated == (which == Fuse::all && gate_format == up_format));
    }

  // Computes the expected result by the ops' references.
  Plan plan(graph(), batch, where, 1, Fuse::none);
  AlignedBytes arena;
  arena.grow(plan.arena_bytes());
  plan.bind(arena.data());
  fill(plan);
  for (const Step& s : plan.steps) std::visit([&](const auto& op) { op.reference(s.args); }, s.op);
  const std::vector<float> want = result_of(plan);
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i)
    error += double(want[i] - first[i]) * (want[i] - first[i]), size += double(want[i]) * want[i];
  CHECK(error < 1e-10 * size);
}

}  // namespace

// A mixture of experts: choices are integers that go from one op to others. Gate and up become one
// step if they have one format.
TEST_CASE("fuse: a mixture of experts is planned, run and fused like everything else") {
  check_mixture(Format::q8, Format::q4);
  check_mixture(Format::q8, Format::q8);
  check_mixture(Format::f16, Format::f16);
  check_mixture(Format::mxfp4, Format::mxfp4, true);
}
