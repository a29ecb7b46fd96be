#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/bench/bandwidth.h"
#include "engine/bench/random_model.h"
#include "engine/engine_impl.h"
#include "engine/model_file.h"
#include "engine/page_table.h"
#include "engine/placement.h"
#include "engine/session.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/cores.h"
#include "ggml-like-tensor/reading.h"

namespace chaski {

namespace {

// Puts the tokenizer into the engine, and returns the weights.
std::shared_ptr<const Weights> open_weights(EngineImpl& e, const EngineOptions& o, int threads) {
  const auto [source, mapped] = open_model(o.model, o.tokenizer);
  if (mapped) {
    if (!o.model.empty()) verify_file(*mapped, o.verify, threads);
    return o.copy ? load(source, threads) : mapped;
  }
  e.tokenizer = expect_runnable(source);
  if (o.notice && o.verify == Verify::always)
    o.notice(fmt::format("{}: a {} has no sums of its tensors to verify", o.model, source.kind));
  if (o.notice)
    o.notice(fmt::format("{}: {}, converted in memory ('chaski convert' keeps the result)", o.model,
                         source.kind));
  return load(source, threads);
}

void expect_kv_type(const EngineOptions& o) {
  const bool known = std::any_of(std::begin(kKvTypes), std::end(kKvTypes),
                                 [&](const KvType& t) { return t.format == o.kv; });
  if (!known)
    fail(Exit::usage, "--kv is {}, which keys and values are not kept in", info(o.kv).name);
}

// The states of the model's first layers.
StateLayout states_of(const Model& model, int layers, Format kv) {
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  return StateLayout(cpu_graph(model, layers, one).states, kv, false);
}

// Of a table of positions there are no more; rotary positions go on, beyond what they were trained
// for.
void expect_context(const EngineOptions& o, const Model& m, const std::string& path) {
  const bool ends = std::any_of(m.weights.begin(), m.weights.end(),
                                [](auto& w) { return w.role == Role::position_table; });
  if (o.context < 0 || (ends && o.context > m.context))
    fail(Exit::usage, "{}: --ctx is {}, expected 1 to {}: the model knows no more positions", path,
         o.context, m.context);
  if (o.context <= m.context) return;
  const StateLayout states = states_of(m, int(m.n_layers), o.kv);
  double need = 0;
  const std::vector<int64_t> pages = pages_of_session(states.pools, o.context, 1);
  for (size_t i = 0; i < pages.size(); ++i)
    need += double(pages[i]) * double(states.pools[i].page_bytes);
  if (const auto have = available_memory(); have && need > double(*have))
    fail(Exit::memory, "a context of {} keeps {:.3g} GB, {:.3g} GB of memory are available",
         o.context, need / 1e9, double(*have) / 1e9);
  if (o.notice)
    o.notice(fmt::format("{}: a context of {} is more than the model's own of {}", path, o.context,
                         m.context));
}

struct Stretch {
  RopeScaling kind = RopeScaling::none;
  double factor = 1;
};

// What --rope-scaling says; nothing if the file's own scaling stays.
std::optional<Stretch> stretch_of(const std::string& wanted) {
  if (wanted.empty()) return std::nullopt;
  if (wanted == "none") return Stretch{};
  constexpr std::pair<std::string_view, RopeScaling> kKinds[] = {{"linear", RopeScaling::linear},
                                                                 {"dynamic", RopeScaling::dynamic},
                                                                 {"yarn", RopeScaling::yarn}};
  const size_t colon = std::min(wanted.find(':'), wanted.size());
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](auto& k) { return k.first == wanted.substr(0, colon); });
  char* end = nullptr;
  const double factor = colon < wanted.size() ? std::strtod(&wanted[colon + 1], &end) : 1;
  if (kind == std::end(kKinds) || !end || *end || !(factor > 1 && factor <= 1024))
    fail(
        Exit::usage,
        "--rope-scaling is {}, expected none, or linear:F, dynamic:F or yarn:F, with F above 1 and "
        "up to 1024",
        escaped(wanted));
  return Stretch{kind->second, factor};
}

void stretch(Model& m, const EngineOptions& o, const std::string& path) {
  const std::optional<Stretch> wanted = stretch_of(o.rope_scaling);
  if (wanted && !m.stretch_rope(wanted->kind, wanted->factor))
    fail(Exit::usage, "--rope-scaling is {}, but {} has no rotary positions", o.rope_scaling, path);
}

int64_t hidden_columns(const Model& model) {
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  const Graph g = cpu_graph(model, int(model.n_layers), one);
  return g.hidden == kNone ? 0 : g.values[size_t(g.hidden)].shape.cols;
}

// The CPU has room for this many whole contexts at least; addresses only, memory is taken as pages
// are written.
constexpr int64_t kContexts = 16;

// Pages of each pool.
std::vector<int64_t> host_pages(const StateLayout& states, int context, int pass, int sessions) {
  std::vector<int64_t> pages = pages_of_session(states.pools, context, pass);
  uint64_t one = 0;
  for (size_t i = 0; i < pages.size(); ++i) one += uint64_t(pages[i]) * states.pools[i].page_bytes;
  int64_t contexts = std::max<int64_t>(kContexts, sessions);
  // ulimit -v counts addresses: there they are as dear as memory.
  if (const auto left = available_addresses(); left && uint64_t(contexts) * one > *left / 2)
    contexts = std::max(sessions, 1);
  for (size_t i = 0; i < pages.size(); ++i) {
    const uint64_t page = std::max<size_t>(states.pools[i].page_bytes, 1);
    const int64_t most = int64_t((uint64_t(1) << 40) / page) + 1;
    pages[i] = whole_groups(std::min(contexts * pages[i], most));
  }
  return pages;
}

void bind(EngineImpl& e, std::shared_ptr<const Weights> weights) {
  e.weights = std::move(weights);
  e.model = bind_model(*e.weights);
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
  e.batch.tables.resize(here.pools.size()), e.batch.stores.resize(here.pools.size());
}

void fill(EngineImpl& e, std::shared_ptr<const Weights> weights, const EngineOptions& o,
          int threads) {
  bind(e, std::move(weights));
  if (o.notice && e.tokenizer && !e.tokenizer->remark().empty()) o.notice(e.tokenizer->remark());
  const Model& m = *e.model;
  stretch(*e.model, o, e.weights->path);
  expect_kv_type(o);
  expect_context(o, m, e.weights->path);
  e.model->expect_sessions(o.context ? o.context : m.context);
  const Placement placement = place(m, o);
  e.context = placement.context, e.max_batch = placement.max_batch, e.kv = o.kv;
  e.model->expect_sessions(e.context);  // a device may have room for less
  if (placement.cpu_layers < m.n_layers) open_device(e, placement, o);
  e.states = states_of(m, int(m.n_layers), o.kv);
  e.hidden = hidden_columns(m);
  e.host.states = states_of(m, placement.cpu_layers, o.kv);
  open_pools(e, e.device ? e.device->backend().pages()
                         : host_pages(e.host.states, e.context, e.max_batch, o.sessions));
  e.cpu = std::make_unique<CpuPasses>(*e.model, placement.cpu_layers, e.batch, e.host, threads,
                                      o.threads_fixed);
}

int thread_count(const EngineOptions& o) {
  if (o.threads < 0 || o.threads > 1024)
    fail(Exit::usage, "--threads is {}, expected 1 to 1024, or 0 for all", o.threads);
  if (o.threads == 0) return physical_cores();
  return o.threads_fixed ? o.threads : std::min(o.threads, usable_cores());
}

}  // namespace

void EngineImpl::run(Result what, std::span<const CudaDraw> draws) {
  plan_readings(batch, states.pools);
  result_ = cpu_layers() > 0 ? cpu->run(what, profile) : nullptr;
  if (device) device->run(batch, what, result_, draws, profile);
  if (profile) ++profile->passes;
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
  check_device(o);
  stretch_of(o.rope_scaling);  // throws now what would be thrown after minutes of reading
  const int threads = thread_count(o);
  std::shared_ptr<Engine> e(new Engine);
  fill(*e->impl_, open_weights(*e->impl_, o, threads), o, threads);
  return e;
}

std::shared_ptr<Engine> Engine::random(const ShapeOptions& shape, const EngineOptions& o) {
  check_device(o);
  std::shared_ptr<Engine> e(new Engine);
  fill(*e->impl_, random_model(shape), o, thread_count(o));
  return e;
}

std::shared_ptr<Engine> Engine::with(const EngineOptions& o) const {
  std::shared_ptr<Engine> e(new Engine);
  fill(*e->impl_, impl_->weights, o, thread_count(o));
  return e;
}

const Metadata& Engine::meta() const { return impl_->weights->meta; }
const std::string& Engine::path() const { return impl_->weights->path; }
bool Engine::has_tokenizer() const { return impl_->tokenizer != nullptr; }
const Tokenizer& Engine::tokenizer() const {
  if (!impl_->tokenizer)
    fail(Exit::bad_file, "{}: tokenizer.kind is missing, so there is no text to run on", path());
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

uint64_t Engine::weight_bytes() const {
  const auto& weights = impl_->model->weights;
  const bool tied = std::none_of(weights.begin(), weights.end(),
                                 [](const auto& w) { return w.role == Role::head; });
  uint64_t sum = 0;
  for (const auto& [role, weight] : weights)
    if (role == Role::matmul || role == Role::head || (tied && role == Role::token_table))
      sum += weight->info.bytes();
  return sum;
}

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
