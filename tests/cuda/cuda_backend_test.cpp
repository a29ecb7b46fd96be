// The CUDA backend through its interface (cuda/backend.h). A whole model on the device is compared
// with the CPU. Graphs are replayed over changing batches, pages are copied, and tokens are drawn
// as the host's sampler draws them. Errors without a device or with too little memory are checked.
#include "cuda/backend.h"
#include "cuda/draw/draw.cuh"
#include "engine/pages/kv_cache.h"
#include "engine/passes/pipeline.h"
#include "engine/sampling/sampler.h"
#include "engine/session/engine.h"
#include "tests/kit/cuda_device.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::shared_ptr<Engine> cpu_engine() {
  EngineOptions o;
  o.device = "cpu";
  return Engine::open(o);
}

StateLayout device_states(const Engine& e) {
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  return StateLayout(stage_graph(e.model(), all_layers(e.model()), one).states, Format::f16, true);
}

std::vector<const Weight*> all_weights(const Weights& w) {
  std::vector<const Weight*> all;
  for (const Weight& one : w.tensors) all.push_back(&one);
  return all;
}

// Runs the bundled model on the CPU and on the device over the same tokens.
struct Both {
  std::shared_ptr<Engine> engine = cpu_engine();
  Engine& e = *engine;
  Batch batch;  // of the device
  std::unique_ptr<CudaBackend> cuda;
  std::vector<int32_t> host_table, table;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<CudaPlan>> plans;

  Both() {
    CudaOptions o;
    o.context = 128, o.max_batch = 64, o.states = device_states(e), o.pages = {{8, 64}};
    cuda = CudaBackend::open(all_weights(*e.weights()), o);
    cuda->upload({});
    for (int i = 0; i < 8; ++i)
      host_table.push_back(e.kv_cache().pools[0].take()), table.push_back(17 - 2 * i);
  }
  static void fill(Batch& b, std::span<const TokenId> tokens, int from,
                   const std::vector<int32_t>& table, std::vector<int32_t> outputs) {
    b.tokens.assign(tokens.begin(), tokens.end());
    b.positions.clear();
    for (size_t i = 0; i < tokens.size(); ++i) b.positions.push_back(from + int(i));
    b.cells = b.positions, b.sequences.assign(tokens.size(), 0), b.tables = {{table.data()}};
    b.stores = {stores_of(b, 0)};
    b.outputs = std::move(outputs);
  }
  std::vector<float> on_host(std::span<const TokenId> tokens, int from,
                             std::vector<int32_t> outputs) {
    fill(e.pipeline().batch, tokens, from, host_table, outputs);
    e.pipeline().run({});
    const float* logits = e.pipeline().result();
    return {logits, logits + outputs.size() * size_t(engine->vocab_size())};
  }
  void pass(std::span<const TokenId> tokens, int from, std::vector<int32_t> outputs,
            std::span<const CudaDraw> draws = {}) {
    fill(batch, tokens, from, table, std::move(outputs));
    auto& plan = plans[{tokens.size(), batch.outputs.size()}];
    if (!plan) {
      Graph graph(batch);
      e.model().build(graph);
      plan = cuda->plan(std::move(graph), batch);
    }
    cuda->run(*plan, draws);
  }
  std::vector<float> on_device(std::span<const TokenId> tokens, int from,
                               std::vector<int32_t> outputs) {
    pass(tokens, from, std::move(outputs));
    const auto logits = cuda->result();
    return {logits.begin(), logits.end()};
  }
};

double error(const std::vector<float>& x, const std::vector<float>& y) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < y.size(); ++i)
    difference += (double(x[i]) - y[i]) * (double(x[i]) - y[i]), size += double(y[i]) * y[i];
  return x.size() == y.size() ? difference / size : INFINITY;
}

const std::vector<TokenId> kText{1,    100,  200,  300,  400,  500,  600,  700,  800,  900,
                                 1000, 1100, 1200, 1300, 1400, 1500, 1600, 1700, 1800, 1900};

}  // namespace

TEST_CASE(
    "cuda: a model's logits equal the CPU's within rounding, in any passes and in replayed "
    "graphs") {
  Device device;
  if (!device.available()) return;
  Both both;
  constexpr size_t kPrompt = 14;
  std::vector<std::vector<float>> whole;
  // a prompt without outputs, then tokens one by one: the first is launched, the second captured,
  // the third replayed
  for (int round = 0; round < 2; ++round) {
    both.pass(std::span(kText).first(kPrompt), 0, {});
    both.on_host(std::span(kText).first(kPrompt), 0, {kPrompt - 1});
    for (size_t t = kPrompt; t < kText.size(); ++t) {
      const auto want = both.on_host(std::span(kText).subspan(t, 1), int(t), {0});
      auto got = both.on_device(std::span(kText).subspan(t, 1), int(t), {0});
      CHECK(error(got, want) < 1e-4);  // some activations get a different code
      if (round == 0) whole.push_back(got);
      CHECK(got == whole[t - kPrompt]);
    }
  }
  const auto together = both.on_device(kText, 0, {kPrompt + 2, 19});
  const size_t vocab = together.size() / 2;
  CHECK(std::equal(whole[2].begin(), whole[2].end(), together.begin()));
  CHECK(std::equal(whole.back().begin(), whole.back().end(), together.begin() + long(vocab)));

  // A copied page has the same content. All heads of a layer's keys or values are one copy.
#if defined(CHASKI_CUDA_SHIM)
  const long copies = shim::copies();
  both.cuda->copy_page(0, both.table[0], 40);
  CHECK(shim::copies() - copies == 2 * long(both.e.model().n_layers));
#else
  both.cuda->copy_page(0, both.table[0], 40);
#endif
  both.table[0] = 40;
  CHECK(both.on_device(std::span(kText).subspan(19, 1), 19, {0}) == whole.back());

  std::vector<double> seconds;
  both.cuda->profile = &seconds;
  both.on_device(std::span(kText).subspan(19, 1), 19, {0});
  CHECK(seconds.size() == both.plans.at({1, 1})->plan().steps.size());
  // the other kernels: embedding, output row, last sum, logits
  CHECK(both.plans.at({1, 1})->kernels() == 5 * both.e.model().n_layers + 4);
  CHECK(both.plans.at({20, 2})->kernels() == both.plans.at({20, 2})->plan().steps.size());
}

TEST_CASE("cuda: a norm that several matmuls read is a separate step") {
  Device device;
  if (!device.available()) return;
  Both both;
  Both::fill(both.batch, std::span(kText).first(1), 0, both.table, {0});
  const auto weight = [&](int layer, const char* name) {
    return both.e.weights()->find(fmt::format("layer.{}.{}", layer, name));
  };
  Graph graph(both.batch);
  const ValueId n = graph.rms_norm(graph.get_rows(*both.e.weights()->find("token_embd")),
                                   *weight(0, "attn_norm"), 1e-5f);
  ValueId sum = graph.matmul(n, *weight(0, "attn_q"));
  // three of them share a step, one is left
  for (int layer = 1; layer < 4; ++layer)
    sum = graph.add(sum, graph.matmul(n, *weight(layer, "attn_q")));
  graph.set_result(sum);
  const PassContext where;
  Plan host(graph, cpu_backend(), both.batch, where);
  Executor executor(1);
  executor.run(host);
  const std::vector<float> want(host.result(), host.result() + host.result_shape().cols);
  const auto plan = both.cuda->plan(std::move(graph), both.batch);
  both.cuda->run(*plan);
  const auto got = both.cuda->result();
  CHECK(error({got.begin(), got.end()}, want) < 1e-4);
}

TEST_CASE("cuda: tokens drawn in a pass equal the sampler's draws, each with its settings") {
  Device device;
  if (!device.available()) return;
  Both both;
  both.pass(std::span(kText).first(8), 0, {});
  for (const auto& [temperature, top_k, top_p, min_p] : {std::tuple{0.0, 40, 1.0, 0.0},
                                                         {0.8, 40, 0.95, 0.05},
                                                         {1.5, 64, 1.0, 0.0},
                                                         {1.0, 1, 1.0, 0.0},
                                                         {3.0, 20, 0.6, 0.01}}) {
    for (int seed = 0; seed < 3; ++seed) {
      SamplerOptions options[2];
      std::vector<CudaDraw> draws(2);
      for (size_t i = 0; i < 2; ++i) {
        SamplerOptions& o = options[i];
        o.temperature = temperature * double(1 + i), o.top_k = top_k, o.top_p = top_p,
        o.min_p = min_p, o.seed = uint64_t(seed) << 33 | (5 + i);
        draws[i] = {.temperature = o.temperature,
                    .top_p = top_p,
                    .min_p = min_p,
                    .seed = o.seed,
                    .top_k = top_k,
                    .vocab = both.engine->vocab_size() - 3};
      }
      both.pass(std::span(kText).subspan(8, 3), 8, {0, 2}, draws);
      const std::vector<int32_t> tokens(both.cuda->tokens().begin(), both.cuda->tokens().end());
      const auto logits = both.cuda->result();
      for (size_t i = 0; i < 2; ++i)
        CHECK(tokens[i] == Sampler(options[i])
                               .draw(logits.subspan(i * logits.size() / 2, size_t(draws[i].vocab)),
                                     std::span(kText).first(9 + 2 * i)));
    }
  }
}

TEST_CASE("cuda: draws over wide rows, equal logits and NaN or infinity") {
  Device device;
  if (!device.available()) return;
  const int64_t rows = 4, columns = 70000;  // 69 slices, then 5, then one
  std::vector<float> logits(size_t(rows * columns));
  // many logits are equal
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::round(40 * noise(uint32_t(i))) / 8;
  logits[size_t(2 * columns) + 69999] = INFINITY, logits[size_t(3 * columns) + 5] = NAN;
  for (double temperature : {0.0, 1.0}) {
    SamplerOptions o;
    o.temperature = temperature, o.seed = 9;
    CudaDraw draw;
    draw.temperature = temperature, draw.top_p = o.top_p, draw.min_p = o.min_p, draw.seed = 9,
    draw.vocab = 69990;
    LaunchContext c = device.context();
    c.batch.positions = device.upload(std::vector<int32_t>{6, 7}),
    c.batch.outputs = device.upload(std::vector<int32_t>{0, 1, 0, 0});
    c.scratch = static_cast<std::byte*>(device.poisoned(draw_scratch(rows, columns)));
    auto* tokens = static_cast<int32_t*>(device.poisoned(size_t(rows) * 4));
    launch_draw(c, device.upload(std::vector<CudaDraw>(size_t(rows), draw)), device.upload(logits),
                rows, columns, tokens);
    int32_t got[4];
    device.download(tokens, got, sizeof got);
    Sampler sampler(o);
    for (size_t i = 0; i < 2; ++i)
      CHECK(got[i] ==
            sampler.draw(std::span<const float>(logits).subspan(i * size_t(columns), 69990),
                         std::span(kText).first(7 + i)));
    CHECK(got[2] == -1);
    CHECK(got[3] == -1);
  }
  CHECK(cuda_can_draw({.temperature = 0}));
  CHECK(!cuda_can_draw({.temperature = 1, .top_k = 0}));
  CHECK(!cuda_can_draw({.temperature = 1, .top_k = kMostTopK + 1}));
}

TEST_CASE("cuda: attention that does not fit into shared memory is refused with the limit") {
  const auto engine = cpu_engine();
  for (const auto& [format, way] :
       {std::pair{Format::f32, "over f32 pages"}, {Format::f16, "over f16 pages"}}) {
    Batch one;
    one.tokens.resize(1), one.outputs.resize(1);
    Graph graph = stage_graph(engine->model(), all_layers(engine->model()), one);
    const StateLayout states(graph.states, format, true);
    CudaWorking working(128, 32 * 1024);
    const Error error = error_of([&] { working.add(std::move(graph), one, states); });
    CHECK(error.code == Exit::device);
    CHECK(std::string(error.what()) ==
          fmt::format("cuda: attention {} needs more shared memory than this device has (32 KB a "
                      "block); use {}",
                      way, format == Format::f32 ? "--kv f16" : "--device cpu"));
  }
}

#if defined(CHASKI_CUDA_SHIM)
TEST_CASE("cuda: a missing device or too little memory is reported before anything is loaded") {
  const auto engine = cpu_engine();
  CudaOptions o;
  o.context = 128, o.max_batch = 8, o.states = device_states(*engine), o.pages = {{8, 8}};
  auto open = [&] { CudaBackend::open(all_weights(*engine->weights()), o); };
  CHECK(cuda_devices().list.empty());
  CHECK(cuda_devices().why_none == "no CUDA-capable device is detected");
  Error error = error_of(open);
  CHECK(error.code == Exit::device);
  CHECK(std::string(error.what()) ==
        "cuda: device 0 was requested, but no CUDA-capable device is detected");

  shim::show_devices(1);
  shim::set_device_memory(size_t(1) << 34);
  CHECK(cuda_devices(true).list[0].free_bytes == size_t(1) << 34);
  o.device = 3;
  CHECK(std::string(error_of(open).what()) == "cuda: device 3 was requested, but there are 1");
  o.device = 0;
  shim::set_device_memory(2 << 20);
  error = error_of(open);
  CHECK(error.code == Exit::memory);
  CHECK(
      std::string(error.what()).find("positions of keys and values and working memory need 0.00") !=
      std::string::npos);
  CHECK(std::string(error.what()).find("GB, 0.0021 GB are free") != std::string::npos);
  shim::set_device_memory(size_t(1) << 34);
  shim::show_devices(0);
}

TEST_CASE("cuda: an old driver is named with the version that is needed") {
  shim::show_devices(1);
  shim::set_driver_version(12040);
  CHECK(cuda_devices().why_none == "the NVIDIA driver supports CUDA 12.4, expected 13.0 or later");
  shim::set_driver_version(0);
  CHECK(cuda_devices().list.size() == 1);
  shim::set_driver_version(13000);
  shim::show_devices(0);
}

TEST_CASE("cuda: of several devices, only those in use keep a context") {
  shim::show_devices(3);
  const auto engine = cpu_engine();
  CudaOptions o;
  o.context = 128, o.max_batch = 8, o.states = device_states(*engine), o.pages = {{8, 8}};
  o.device = 2;
  const auto open = [&] { return CudaBackend::open(all_weights(*engine->weights()), o); };
  auto cuda = open();
  CHECK(shim::contexts() == 1);
  cuda_devices(true);
  CHECK(shim::contexts() == 2);  // the open one, and the first of those with equal memory
  int current = 0;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 2);
  // The device that another thread or call made current does not matter.
  check_cuda(cudaSetDevice(1), "cudaSetDevice");
  CHECK_NOTHROW(cuda->upload({}));
  cuda.reset();
  cuda_devices(true);
  CHECK(shim::contexts() == 1);
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);  // the other one was reset
  shim::show_devices(0);
}

TEST_CASE("cuda: an upload that is stopped leaves no memory allocated") {
  shim::show_devices(1);
  shim::set_device_memory(size_t(1) << 34);
  {
    const auto engine = cpu_engine();
    CudaOptions o;
    // pages are allocated in groups of 16
    o.context = 128, o.max_batch = 8, o.states = device_states(*engine), o.pages = {{8, 8}};
    auto cuda = CudaBackend::open(all_weights(*engine->weights()), o);
    uint64_t last = 0;
    const Error error = error_of([&] {
      cuda->upload([&](uint64_t done, uint64_t all) {
        CHECK(done > last);
        CHECK(all == engine->weights()->bytes());
        last = done;
        if (done > all / 2) fail(Exit::io, "stopped");
      });
    });
    CHECK(error.code == Exit::io);
    CHECK(cuda->pages() == std::vector<int64_t>{kPageGroup});
  }
  CHECK(cuda_devices(true).list[0].free_bytes == size_t(1) << 34);
  shim::show_devices(0);
}
#endif
