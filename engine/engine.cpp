#include "engine/engine.h"

#include <algorithm>

#include "engine/bundled.h"
#include "engine/engine_impl.h"
#include "engine/random_model.h"
#include "engine/session.h"
#include "models/import.h"

namespace chaski {

namespace {

std::shared_ptr<const Weights> open_weights(const EngineOptions& o, int threads) {
  if (o.model.empty() || is_quipu(o.model)) {
    const auto mapped = o.model.empty() ? open_quipu("(bundled)", bundled_model()) : open_quipu(o.model);
    return o.copy ? load(source_of(mapped), threads) : mapped;
  }
  const ModelSource source = import_model(o.model, {o.tokenizer});
  if (source.tensors.empty()) fail(Exit::bad_file, "{}: {} holds no tensors, only a vocabulary", o.model, source.kind);
  if (o.notice) o.notice(fmt::format("{}: {}, converted in memory ('chaski convert' keeps the result)", o.model, source.kind));
  return load(source, threads);
}

void check_device(const EngineOptions& o) {
  if (o.device == "auto" || o.device == "cpu") return;
  if (o.device == "cuda" || o.device.rfind("cuda:", 0) == 0)
    fail(Exit::device, "--device is {}, but models are run by the CPU only so far; expected auto or cpu", escaped(o.device));
  fail(Exit::usage, "--device is {}, expected auto, cpu or cuda[:N]", escaped(o.device));
}

KvLayout kv_layout(const EngineOptions& o, const Hyper& h) {
  const bool known = std::any_of(std::begin(kKvTypes), std::end(kKvTypes), [&](const KvType& t) { return t.format == o.kv; });
  if (!known) fail(Exit::usage, "--kv is {}, which keys and values are not kept in", info(o.kv).name);
  KvLayout l;
  l.format = o.kv, l.layers = int(h.layers), l.heads = h.kv_heads, l.head_dim = h.head_dim;
  return l;
}

// Room for this many whole contexts; addresses only, memory is taken as pages are written.
constexpr int64_t kContexts = 16;

void fill(EngineImpl& e, std::shared_ptr<const Weights> weights, const EngineOptions& o, int threads) {
  e.weights = std::move(weights);
  e.model = bind_model(*e.weights);
  if (e.weights->meta.has("tokenizer.kind")) {
    e.tokenizer = Tokenizer::make(e.weights->meta);
    if (e.tokenizer->size() > e.model->hyper.vocab)
      fail(Exit::bad_file, "{}: tokenizer.tokens has {} pieces, expected at most model.vocab_size {}", e.weights->path,
           e.tokenizer->size(), e.model->hyper.vocab);
  }
  const Hyper& h = e.model->hyper;
  if (o.context < 0 || o.context > h.context)
    fail(Exit::usage, "--ctx is {}, expected 1 to {} ({}'s context length)", o.context, h.context, e.weights->path);
  e.context = int(o.context ? o.context : h.context);
  const KvLayout layout = kv_layout(o, h);
  const int64_t pages = (e.context + kPage - 1) / kPage * kContexts;
  const int64_t most = int64_t((uint64_t(1) << 40) / layout.page_bytes()) + 1;
  e.pool = std::make_unique<KvPool>(layout, (std::min(pages, most) + kPageGroup - 1) / kPageGroup * kPageGroup);
  e.batch.kv = e.pool->view();
  e.backend = &cpu_backend();
  e.executor = std::make_unique<Executor>(threads);
}

int thread_count(const EngineOptions& o) {
  if (o.threads < 0 || o.threads > 1024) fail(Exit::usage, "--threads is {}, expected 1 to 1024, or 0 for all", o.threads);
  return o.threads ? o.threads : usable_cores();
}

}  // namespace

const float* EngineImpl::forward() {
  Plan& plan = plan_for(batch.size(), int64_t(batch.outputs.size()));
  extend_ropes(plan.graph());
  std::vector<double> seconds;
  executor->profile = profile ? &seconds : nullptr;
  executor->run(plan);
  if (profile) add_to_profile(plan, seconds);
  return plan.result();
}

void EngineImpl::add_to_profile(const Plan& plan, const std::vector<double>& seconds) {
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Step& step = plan.steps[i];
    OpProfile& p = profile->ops[name_of(step.op)];
    const Cost cost = std::visit([&](const auto& op) { return op.cost(step.args); }, step.op);
    p.seconds += seconds[i], ++p.calls;
    p.cost.bytes += cost.bytes, p.cost.flops += cost.flops, p.cost.integer += cost.integer;
  }
  ++profile->passes;
  profile->steps += plan.steps.size(), profile->barriers += plan.barriers();
}

// Plans are kept by batch shape; a run of odd prompt lengths must not fill memory with them.
Plan& EngineImpl::plan_for(int64_t tokens, int64_t outputs) {
  std::unique_ptr<Plan>& plan = plans_[{tokens, outputs}];
  if (plan) return *plan;
  Graph graph(batch);
  model->build(graph);
  auto made = std::make_unique<Plan>(std::move(graph), *backend, batch);
  if (plans_.size() > 64) {
    plans_.clear();
    return *(plans_[{tokens, outputs}] = std::move(made));
  }
  return *(plan = std::move(made));
}

// Angles for every position so far, doubled each time so that a decode step seldom makes any.
void EngineImpl::extend_ropes(const Graph& graph) {
  int64_t need = 1;
  for (int32_t p : batch.positions) need = std::max<int64_t>(need, p + 1);
  ropes_.resize(graph.ropes.size());
  batch.ropes.resize(graph.ropes.size());
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const RopeSpec& spec = graph.ropes[i];
    const int64_t have = int64_t(ropes_[i].size()) / spec.dim;
    if (have < need) spec.append(ropes_[i], have, std::min<int64_t>(std::max(2 * have, need + 255), std::max<int64_t>(need, context)));
    batch.ropes[i] = ropes_[i].data();
  }
}

Engine::Engine() : impl_(std::make_unique<EngineImpl>()) {}
Engine::~Engine() = default;

std::shared_ptr<Engine> Engine::open(const EngineOptions& o) {
  check_device(o);
  const int threads = thread_count(o);
  std::shared_ptr<Engine> e(new Engine);
  fill(*e->impl_, open_weights(o, threads), o, threads);
  return e;
}

std::shared_ptr<Engine> Engine::random(const ShapeOptions& shape, const EngineOptions& o) {
  check_device(o);
  std::shared_ptr<Engine> e(new Engine);
  fill(*e->impl_, random_model(shape), o, thread_count(o));
  return e;
}

std::shared_ptr<Engine> Engine::with(const EngineOptions& o) const {
  check_device(o);
  std::shared_ptr<Engine> e(new Engine);
  fill(*e->impl_, impl_->weights, o, thread_count(o));
  return e;
}

const Metadata& Engine::meta() const { return impl_->weights->meta; }
const std::string& Engine::path() const { return impl_->weights->path; }
bool Engine::has_tokenizer() const { return impl_->tokenizer != nullptr; }
const Tokenizer& Engine::tokenizer() const {
  if (!impl_->tokenizer) fail(Exit::bad_file, "{}: tokenizer.kind is missing, so there is no text to run on", path());
  return *impl_->tokenizer;
}
int Engine::vocab_size() const { return int(impl_->model->hyper.vocab); }
int Engine::context_length() const { return impl_->context; }
int Engine::threads() const { return impl_->executor->threads(); }
std::string Engine::isa() const { return impl_->backend->name; }
uint64_t Engine::file_bytes() const { return impl_->weights->bytes(); }

uint64_t Engine::weight_bytes() const {
  const bool tied = !impl_->weights->find("output");
  uint64_t sum = 0;
  for (const Weight& w : impl_->weights->tensors)
    if (w.info.tiled() && w.info.name != "position_embd" && (tied || w.info.name != "token_embd")) sum += w.info.bytes();
  return sum;
}

Format Engine::weight_format() const {
  std::map<Format, uint64_t> bytes;
  for (const Weight& w : impl_->weights->tensors)
    if (w.info.tiled()) bytes[w.info.format] += w.info.bytes();
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? Format::f32 : most->first;
}

std::string Engine::kv_type() const {
  const Format format = impl_->batch.kv.layout.format;
  return std::find_if(std::begin(kKvTypes), std::end(kKvTypes), [&](const KvType& t) { return t.format == format; })->name;
}

uint64_t Engine::kv_bytes_per_token() const { return impl_->batch.kv.layout.page_bytes() / kPage; }

}  // namespace chaski
