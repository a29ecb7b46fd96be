#include "engine/session/engine.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/machine/bandwidth.h"
#include "engine/pages/page_table.h"
#include "engine/passes/placement.h"
#include "engine/passes/random_model.h"
#include "engine/session/engine_impl.h"
#include "engine/session/memory_need.h"
#include "engine/session/session.h"
#include "engine/shelf/model_file.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/cores.h"

namespace chaski {

namespace {

// Returns the weights. Sets the engine's tokenizer if the file had to be converted.
std::shared_ptr<const Weights> open_weights(EngineImpl& e, OpenModel&& model,
                                            const EngineOptions& o, int threads) {
  const auto [source, mapped] = std::move(model);  // closed at the end, before pages are mapped
  if (mapped) {
    expect_memory(source, !o.copy, o);
    if (!o.model.empty()) verify_file(*mapped, o.verify, threads);
    return o.copy ? load(source, threads) : mapped;
  }
  e.tokenizer = expect_runnable(source);
  expect_memory(source, false, o);
  if (o.notice && o.verify == Verify::always)
    o.notice(fmt::format("{}: a {} has no checksums to verify", o.model, source.kind));
  if (o.notice)
    o.notice(fmt::format("{}: {}, converted in memory ('chaski convert' keeps the result)", o.model,
                         source.kind));
  return load(source, threads);
}

void count_columns(EngineImpl& e) {
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  const Graph g = cpu_graph(*e.model, int(e.model->n_layers), one);
  e.hidden = e.beside = g.hidden == kNone ? 0 : g.values[size_t(g.hidden)].shape.cols;
  e.logits = g.values[size_t(g.result)].shape.cols;
}

// The CPU reserves addresses for at least this many full contexts. Memory is taken when pages are
// first written.
constexpr int64_t kContexts = 16;

// The size of each pool in pages.
std::vector<int64_t> host_pages(const StateLayout& states, int context, int pass, int sessions) {
  std::vector<int64_t> pages = pages_of_session(states.pools, context, pass);
  uint64_t one = 0;
  for (size_t i = 0; i < pages.size(); ++i) one += uint64_t(pages[i]) * states.pools[i].page_bytes;
  int64_t contexts = std::max<int64_t>(kContexts, sessions);
  // ulimit -v limits addresses, so reserve few of them then.
  if (const auto left = available_addresses(); left && uint64_t(contexts) * one > *left / 2)
    contexts = std::max(sessions, 1);
  for (size_t i = 0; i < pages.size(); ++i) {
    const uint64_t page = std::max<size_t>(states.pools[i].page_bytes, 1);
    const int64_t most = int64_t((uint64_t(1) << 40) / page) + 1;
    pages[i] = whole_groups(std::min(contexts * pages[i], most));
  }
  return pages;
}

// Refuses column orders and outlier columns of weights that the model multiplies without using
// them: its outputs would be wrong.
void expect_all_read(const Model& model, const std::string& path) {
  std::vector<const Weight*> extras;
  for (const Model::BoundWeight& w : model.weights)
    if (w.role == Role::column_order || w.role == Role::outliers) extras.push_back(w.weight);
  if (extras.empty()) return;
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  const std::vector<const Weight*> read = weights_of(cpu_graph(model, int(model.n_layers), one));
  for (const Weight* w : extras)
    if (std::ranges::find(read, w) == read.end())
      fail(Exit::bad_file,
           "{}: tensor {} is unexpected: the model does not use it with this weight", path,
           escaped(w->info.name));
}

void bind(EngineImpl& e, std::shared_ptr<const Weights> weights) {
  e.weights = std::move(weights);
  if (!e.model) {
    e.model = bind_model(*e.weights);
    expect_all_read(*e.model, e.weights->path);
  }
  if (!e.tokenizer) e.tokenizer = tokenizer_of(e.weights->meta);
}

void open_device(EngineImpl& e, const Placement& placement, const EngineOptions& o) {
  auto backend = CudaBackend::open(placement.needs.weights, placement.needs.options);
  backend->upload(o.upload);
  e.device = std::make_unique<DevicePasses>(*e.model, placement.cpu_layers, std::move(backend));
}

void open_pools(EngineImpl& e, const std::vector<int64_t>& pages) {
  StateLayout& here = e.host.states;
  std::vector<std::byte*> addresses;
  for (size_t i = 0; i < here.pools.size(); ++i) {
    e.pages.push_back(std::make_unique<HostPages>(size_t(pages[i]) * here.pools[i].page_bytes));
    addresses.push_back(e.pages.back()->data());
    e.pools.emplace_back(pages[i], [&e, pool = int(i)](int32_t from, int32_t to) {
      e.host.states.copy_page(pool, from, to, [](std::byte* to, const std::byte* from, size_t n) {
        std::memcpy(to, from, n);
      });
      if (e.device) e.device->backend().copy_page(pool, from, to);
    });
  }
  here.place(addresses);
  // With input rows the tokens alone do not determine a page.
  if (!here.pools.empty() && e.model->row_columns == 0 &&
      std::ranges::none_of(e.states.pools, &StateLayout::Pool::recurrent))
    e.prefixes.emplace(e.pools);
  e.batch.tables.resize(here.pools.size()), e.batch.stores.resize(here.pools.size());
}

void fill(EngineImpl& e, std::shared_ptr<const Weights> weights, const EngineOptions& o,
          int threads) {
  bind(e, std::move(weights));
  if (o.notice && e.tokenizer && !e.tokenizer->remark().empty()) o.notice(e.tokenizer->remark());
  const Model& m = *e.model;
  const Placement placement = settle(*e.model, o, e.weights->path);
  e.context = placement.context, e.max_batch = placement.max_batch, e.kv = o.kv;
  e.rope_scaling = o.rope_scaling;
  if (placement.cpu_layers < m.n_layers) open_device(e, placement, o);
  e.states = states_of(m, int(m.n_layers), o.kv);
  count_columns(e);
  e.host.states = states_of(m, placement.cpu_layers, o.kv);
  open_pools(e, e.device ? e.device->backend().pages()
                         : host_pages(e.host.states, e.context, e.max_batch, o.sessions));
  // Idle pages take no new memory beyond what was promised to sessions (memory_need.h). Without
  // --ctx that is kDefaultPositions a session.
  constexpr int kDefaultPositions = 8192;
  const auto promised = pages_of_session(
      e.states.pools, o.context == 0 ? std::min(e.context, kDefaultPositions) : e.context,
      e.max_batch);
  for (size_t i = 0; i < e.pools.size(); ++i)
    e.pools[i].keep_within(std::max(o.sessions, 1) * promised[i]);
  e.cpu = std::make_unique<CpuPasses>(*e.model, placement.cpu_layers, e.batch, e.host, threads,
                                      o.threads_fixed);
}

}  // namespace

bool EngineImpl::run(Result what, std::span<const CudaDraw> draws, const std::atomic<bool>* stop) {
  ENSURE(!device || what != Result::both, "only the CPU computes two results");
  readings.plan(batch, states.pools);
  result_ = nullptr;
  if (cpu_layers() > 0) {
    const auto result = cpu->run(what, rows, profile, stop);
    if (!result) return false;
    result_ = *result;
  }
  if (device) device->run(batch, what, result_, draws, profile);
  if (profile) ++profile->passes;
  return true;
}

namespace {

std::string device_name(const EngineImpl& e) {
  const CudaDevice& d = e.device->backend().device();
  return fmt::format("cuda:{} ({})", d.index, d.name);
}

}  // namespace

Engine::Engine() : impl_(std::make_unique<EngineImpl>()) {}
Engine::~Engine() = default;

std::shared_ptr<Engine> Engine::open(const EngineOptions& o) {
  check_options(o), thread_count(o);  // wrong options are refused before the file is opened
  return open(open_model(o.model, o.tokenizer), o);
}

std::shared_ptr<Engine> Engine::open(OpenModel model, const EngineOptions& o) {
  const int threads = thread_count(o);
  std::shared_ptr<Engine> e(new Engine);
  fill(*e->impl_, open_weights(*e->impl_, std::move(model), o, threads), o, threads);
  return e;
}

std::shared_ptr<Engine> Engine::random(const ShapeOptions& shape, const EngineOptions& o) {
  check_options(o);
  std::shared_ptr<Engine> e(new Engine);
  const ModelSource source = random_source(shape);
  expect_memory(source, false, o);
  fill(*e->impl_, load(source, 1), o, thread_count(o));
  return e;
}

std::shared_ptr<Engine> Engine::over(std::shared_ptr<const Weights> weights,
                                     const EngineOptions& o) {
  std::shared_ptr<Engine> e(new Engine);
  fill(*e->impl_, std::move(weights), o, thread_count(o));
  return e;
}

std::shared_ptr<Engine> Engine::guessing_for(std::shared_ptr<Engine> target,
                                             std::unique_ptr<Model> model,
                                             std::shared_ptr<const Weights> weights, int sessions) {
  EngineOptions o;
  o.device = "cpu", o.threads = target->threads(), o.context = target->context_length();
  o.kv = target->impl().kv, o.sessions = sessions;
  std::shared_ptr<Engine> e(new Engine);
  e->impl_->target = std::move(target), e->impl_->model = std::move(model);
  fill(*e->impl_, std::move(weights), o, o.threads);
  return e;
}

std::shared_ptr<Engine> Engine::with(const EngineOptions& o) const {
  return over(impl_->weights, o);
}

const Metadata& Engine::meta() const { return impl_->weights->meta; }
const std::string& Engine::path() const { return impl_->weights->path; }
bool Engine::has_tokenizer() const { return impl_->tokenizer != nullptr; }
const Tokenizer& Engine::tokenizer() const {
  if (!impl_->tokenizer)
    fail(Exit::bad_file, "{}: the model has no tokenizer (tokenizer.kind is missing)", path());
  return *impl_->tokenizer;
}
int Engine::vocab_size() const { return int(impl_->model->vocab); }
int Engine::hidden_size() const { return int(impl_->hidden); }
int Engine::context_length() const { return impl_->context; }
int Engine::batch_length() const { return impl_->max_batch; }
int Engine::threads() const { return impl_->cpu->executor().threads(); }
double Engine::threads_used() const { return impl_->cpu->executor().threads_used(); }
std::string Engine::isa() const { return impl_->cpu->backend().name; }

std::string Engine::memory() const {
  return impl_->device ? device_name(*impl_) : cpu_with(threads());
}

double Engine::memory_bandwidth() const {
  return impl_->device && impl_->cpu_layers() > 0 ? 0 : kept_bandwidth(memory());
}

std::string Engine::device() const {
  if (!impl_->device) return "cpu";
  const int64_t layers = impl_->model->n_layers, here = impl_->cpu_layers();
  return device_name(*impl_) +
         (here > 0 ? fmt::format(", {} of {} layers", layers - here, layers) : "");
}

uint64_t Engine::file_bytes() const { return impl_->weights->bytes(); }

uint64_t Engine::weight_bytes() const { return weight_bytes_a_token(*impl_->model); }

Format Engine::weight_format() const {
  std::map<Format, uint64_t> bytes;
  for (const Weight& w : impl_->weights->tensors)
    if (w.info.tiled()) bytes[w.info.format] += w.info.bytes();
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? Format::f32 : most->first;
}

std::string Engine::kv_type() const {
  return std::find_if(std::begin(kKvTypes), std::end(kKvTypes),
                      [&](const KvType& t) { return t.format == impl_->kv; })
      ->name;
}

StateBytes Engine::states() const { return chaski::state_bytes(impl_->states); }

uint64_t Engine::state_bytes(int positions) const {
  uint64_t sum = 0;
  for (const StateLayout::Pool& p : impl_->states.pools) {
    const int seen = p.window > 0 ? std::min(p.window, positions) : positions;
    sum += p.recurrent ? p.page_bytes : p.page_bytes / kPage * uint64_t(seen);
  }
  return sum;
}

}  // namespace chaski
