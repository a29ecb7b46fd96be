// Engines whose layers run in several stages: the same bits, pages and files as with one.
#include "engine/passes/stage.h"

#include <cstring>

#include "engine/pages/kv_cache.h"
#include "engine/passes/pipeline.h"
#include "engine/passes/placement.h"
#include "engine/passes/random_model.h"
#include "engine/session/pass.h"
#include "ggml-like-tensor/split.h"
#include "tests/kit/doctest.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/scratch_model.h"

namespace chaski::test {
namespace {

EngineOptions cpu_options(const std::string& model) {
  EngineOptions o;
  o.model = model, o.device = "cpu", o.context = 1200;
  return o;
}

Graph graph_of_one(const Model& model) {
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  return stage_graph(model, all_layers(model), one);
}

// The engine again, with a cut before `layer`.
std::shared_ptr<Engine> cut_in_two(const Engine& whole, const EngineOptions& o, int layer) {
  Placement placement;
  placement.stages = {{{0, layer}}, {{layer, int(whole.model().n_layers)}}};
  return Engine::over(whole.weights(), o, &placement);
}

std::vector<float> copied(std::span<const float> rows) { return {rows.begin(), rows.end()}; }

std::string bytes_of(const std::string& path) { return read_file(path); }

// What sessions of an engine compute: prompts, decode steps, forks, drafts, hidden states.
struct Answers {
  std::vector<std::vector<float>> rows;
  std::vector<std::vector<TokenId>> drawn;
  bool operator==(const Answers&) const = default;
};

Answers answers_of(Engine& e) {
  Answers a;
  const std::vector<TokenId> text = tokens_for(e, 700);
  const std::span<const TokenId> all = text;
  const auto session = e.session();
  a.rows.push_back(copied(session->extend(all.first(301), 3)));
  const auto fork = session->fork();  // both write to the last page: it is copied in every stage
  for (int i = 0; i < 20; ++i) {
    a.rows.push_back(copied(session->decode(all[size_t(301 + i)])));
    a.rows.push_back(copied(fork->decode(all[size_t(500 + i)])));
  }
  if (e.hidden_size() > 0) {
    a.rows.push_back(copied(fork->hidden(all.subspan(600, 9), 9)));
    const Extension both{.session = fork.get(), .tokens = all.subspan(620, 5)};
    Pass pass({&both, 1}, Result::both);
    REQUIRE(pass.run());
    a.rows.push_back(copied(pass.rows()));
    for (size_t i = 0; i < 5; ++i) a.rows.push_back(copied(pass.hidden(0, i)));
  }
  Sampler sampler({}, nullptr);
  Draft draft;
  draft.add(all.first(4));
  if (session->branches(4) > 0) draft.add(all.subspan(10, 3));
  a.drawn.push_back(session->draw(all.subspan(321, 30), sampler, draft.nodes));
  session->rewind(310);
  a.rows.push_back(copied(session->extend(all.subspan(size_t(session->position()), 100))));
  return a;
}

TEST_CASE("stages: a CPU that is cut in two computes the same bits, and shares saved sessions") {
  const TempFolder temp;
  const std::string scratch = write_scratch_model(temp / "scratch.quipu");
  for (const std::string& model :
       {std::string(), scratch, golden("models/gemma3"), golden("models/phi3")}) {
    CAPTURE(model);
    const EngineOptions o = cpu_options(model);
    const auto whole = Engine::open(o);
    const Answers want = answers_of(*whole);
    const auto saved = whole->session();
    saved->extend(tokens_for(*whole, 100));
    saved->save(temp / "whole");
    const Graph graph = graph_of_one(whole->model());
    int cuts = 0;
    for (int layer = 1; layer < int(whole->model().n_layers); ++layer) {
      if (!can_split(graph, layer)) continue;
      CAPTURE(layer);
      ++cuts;
      const auto cut = cut_in_two(*whole, o, layer);
      CHECK(cut->device() == "cpu");
      CHECK(cut->pipeline().stages().size() == 2);
      CHECK(answers_of(*cut) == want);

      const auto session = cut->session();
      session->restore(temp / "whole");
      session->save(temp / "cut");
      CHECK(bytes_of(temp / "cut") == bytes_of(temp / "whole"));
      const std::vector<TokenId> next = {3};
      CHECK(same(session->extend(next), copied(saved->extend(next))));
      saved->rewind(0), saved->restore(temp / "whole");
      for (const KvPool& pool : cut->kv_cache().pools) CHECK(pool.in_use() > 0);
    }
    CHECK(cuts > 0);
  }
}

TEST_CASE("stages: a graph is cut around the experts of its layers") {
  for (const auto& [name, with_experts] :
       {std::pair{"qwen3moe", 2}, {"gpt_oss", 3}, {"dots1", 2}, {"deepseek_v2", 2}, {"olmo", 0}}) {
    CAPTURE(name);
    const auto e = Engine::open(cpu_options(golden("models/") + name));
    const Graph whole = graph_of_one(e->model());
    const std::vector<Graph> parts = around_experts(whole);
    REQUIRE(parts.size() == size_t(2 * with_experts + 1));
    size_t nodes = 0;
    for (size_t i = 0; i < parts.size(); nodes += parts[i++].nodes.size()) {
      const auto experts = std::ranges::count_if(
          parts[i].nodes, [](const Node& n) { return std::holds_alternative<ExpertMatMul>(n.op); });
      CHECK(experts == (i % 2 ? 3 : 0));
      if (i > 0) CHECK(parts[i].input == parts[i - 1].result);
    }
    CHECK(nodes == whole.nodes.size());
    CHECK(parts.back().result == whole.result);
  }
  CHECK(error_of([] {
          EngineOptions o = cpu_options("");
          o.cpu_experts = true;
          Engine::open(o);
        }).code == Exit::usage);
}

TEST_CASE("stages: a pass that is abandoned in the second stage changes nothing") {
  const EngineOptions o = cpu_options("");
  const auto whole = Engine::open(o);
  const auto cut = cut_in_two(*whole, o, 1);
  const auto text = tokens_for(*cut, 60);
  const auto session = cut->session();
  session->extend(std::span(text).first(40));
  auto& second = dynamic_cast<CpuStage&>(*cut->pipeline().stages()[1]);
  std::atomic<bool> stop = false;
  second.executor().after_step = [&](const Plan&, size_t) { stop = true; };
  const Extension next{
      .session = session.get(), .tokens = std::span(text).subspan(40), .interrupt = &stop};
  CHECK_FALSE(Pass({&next, 1}).run());
  second.executor().after_step = nullptr;
  CHECK(session->position() == 40);
  const auto alone = whole->session();
  const std::vector<float> want = copied(alone->extend(text));
  CHECK(same(session->extend(std::span(text).subspan(40)), want));
}

// Layers that run elsewhere: rows and pages travel as bytes.
class RemoteStage : public Stage {
 public:
  RemoteStage(const StageSetup& setup, Layers layers, int64_t pages)
      : there_(setup.model, layers, setup.batch, setup.options.kv, setup.crew, setup.threads,
               false),
        pages_(pages) {}

  Layers layers() const override { return there_.layers(); }
  std::string device() const override { return "remote"; }
  std::vector<int64_t> room() const override {
    return std::vector<int64_t>(there_.host_states()->pools.size(), pages_);
  }
  void reserve(std::span<const int64_t> pages) override { there_.reserve(pages); }
  void copy_page(int pool, int32_t from, int32_t to) override { there_.copy_page(pool, from, to); }
  bool run(const PassWork& work, std::span<const float> input) override {
    const std::vector<float> arrived = sent(input);
    if (!there_.run(work, arrived)) return false;
    result_ = sent(there_.result());
    return true;
  }
  std::span<const float> result() override { return result_; }
  size_t bytes_sent() const { return bytes_; }

 private:
  std::vector<float> sent(std::span<const float> rows) {
    const auto wire = std::as_bytes(rows);
    bytes_ += wire.size();
    std::vector<float> arrived(rows.size());
    if (!wire.empty()) std::memcpy(arrived.data(), wire.data(), wire.size());
    return arrived;
  }

  CpuStage there_;
  int64_t pages_;
  std::vector<float> result_;
  size_t bytes_ = 0;
};

TEST_CASE("stages: one of another kind fits in, and its room limits the pages") {
  const EngineOptions o = cpu_options("");
  const auto whole = Engine::open(o);
  const int layers = int(whole->model().n_layers);
  Placement placement;
  placement.stages = {{{0, 1}}, {{1, layers}}};
  placement.stages[1].other = [](const StageSetup& setup, Layers of) {
    return std::make_unique<RemoteStage>(setup, of, 64);
  };
  const auto e = Engine::over(whole->weights(), o, &placement);
  CHECK(e->device() == fmt::format("remote, {} of {} layers", layers - 1, layers));
  CHECK(e->kv_cache().pools[0].size() == 64);
  const auto text = tokens_for(*e, 300);
  const auto session = e->session();
  const std::vector<float> rows = copied(session->extend(text, 2));
  CHECK(same(rows, copied(whole->session()->extend(text, 2))));
  const auto& remote = dynamic_cast<const RemoteStage&>(*e->pipeline().stages()[1]);
  const size_t width = size_t(e->meta().integer("model.embedding_length"));
  CHECK(remote.bytes_sent() >= text.size() * width * sizeof(float));
  const TempFolder temp;
  try {
    session->save(temp / "kept");
    FAIL("pages that are not on the host were saved");
  } catch (const Error& error) {
    CHECK(error.code == Exit::usage);
    CHECK(std::string(error.what()).find("keys and values on remote cannot be saved") !=
          std::string::npos);
  }
}

// A model with a second network: it returns the embeddings of its tokens, normalized.
struct TwoNetworks : ScratchModel {
  void build(Graph& g) const override {
    if (g.network == Network::decoder) return ScratchModel::build(g);
    const ValueId x = g.rms_norm(g.get_rows(*embedding.weight), *norm.weight, eps);
    g.set_result(g.take_outputs(x));
  }
};

TEST_CASE("stages: a model with two networks has plans of both, which do not mix") {
  const TempFolder temp;
  architectures().push_back({"two_networks", {}, make_model<TwoNetworks>});
  const std::string scratch = write_scratch_model(temp / "scratch.quipu");
  EngineOptions o = cpu_options(scratch);
  const auto one = Engine::open(o);
  auto weights = std::make_shared<Weights>(*one->weights());
  weights->meta.set_str("general.architecture", "two_networks");
  const auto two = Engine::over(weights, o);
  const auto text = tokens_for(*two, 5);
  const std::vector<float> want = copied(one->session()->extend(text, 5));
  Pipeline& pipeline = two->pipeline();
  CHECK(pipeline.columns(Result::logits, Network::encoder) == 64);
  for (int round = 0; round < 2; ++round) {
    const auto session = two->session();
    CHECK(same(session->extend(text, 5), want));
    // the same batch again, by the other network
    CHECK(pipeline.run({.network = Network::encoder}));
    const float* const rows = pipeline.result();
    double squares = 0;
    for (int i = 0; i < 64; ++i) squares += double(rows[i]) * double(rows[i]);
    CHECK(squares > 0);
    CHECK(!std::equal(rows, rows + 64, want.begin()));
  }
  architectures().pop_back();
}

TEST_CASE("stages: every shape with random weights has the keys and tensors of its architecture") {
  for (const std::string& name : shape_names()) {
    CAPTURE(name);
    CHECK_NOTHROW(random_source({name, Format::q4_0}));
  }
}

}  // namespace
}  // namespace chaski::test
