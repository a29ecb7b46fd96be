#include "engine/session/engine.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "engine/machine/bandwidth.h"
#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"
#include "engine/passes/pipeline.h"
#include "engine/passes/placement.h"
#include "engine/passes/random_model.h"
#include "engine/session/expert_memory.h"
#include "engine/session/memory_need.h"
#include "engine/session/session.h"
#include "engine/session/stream_room.h"
#include "engine/session/watched_reading.h"
#include "engine/shelf/converted.h"
#include "engine/shelf/model_file.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/cores.h"

namespace chaski {

namespace {

struct Opened {
  std::shared_ptr<const Weights> weights;
  std::unique_ptr<Tokenizer> tokenizer;
};

// load() that reports to the WatchedReading of this thread.
std::shared_ptr<const Weights> load_watched(const ModelSource& source, int threads) {
  const WatchedReading::OnRead* const on_read = WatchedReading::of_thread();
  if (!on_read) return load(source, threads);
  ModelSource watched = source;
  const uint64_t all = totals_of(source).bytes;
  std::atomic<uint64_t> done = 0;
  for (TensorSource& tensor : watched.tensors) {
    const int64_t strips = tensor.info.tiled() ? (tensor.info.rows + kStrip - 1) / kStrip : 1;
    const uint64_t strip = tensor.info.bytes() / uint64_t(std::max<int64_t>(strips, 1));
    tensor.read = [&, read = std::move(tensor.read), strip](int64_t first, int64_t last,
                                                            std::byte* to) {
      read(first, last, to);
      (*on_read)(done += uint64_t(last - first) * strip, all);
    };
  }
  return load(watched, threads);
}

// `converted` may be null: then the model is not kept.
Opened open_weights(OpenModel&& model, ConvertedModel* converted, const EngineOptions& o,
                    int threads) {
  // closed at the end, before pages are mapped
  const auto [source, mapped, verified] = std::move(model);
  auto tokenizer = expect_runnable(source);  // takes memory, so it comes first
  expect_memory(source, mapped && !o.copy, o);
  if (mapped) {
    if (!o.model.empty() && !verified) verify_file(*mapped, o.verify, threads);
    return {o.copy ? load_watched(source, threads) : mapped, std::move(tokenizer)};
  }
  if (o.notice && o.verify == Verify::always)
    o.notice(fmt::format("{}: a {} has no checksums to verify", o.model, source.kind));
  const bool keep = converted && converted->will_keep();
  if (o.notice)
    o.notice(
        fmt::format("{}: {}, {}", o.model, source.kind,
                    keep ? fmt::format("converted once; the next starts use the copy in {}, which "
                                       "this one writes before it ends (--keep-converted no "
                                       "writes none)",
                                       converted_folder())
                         : "converted in memory ('chaski convert' keeps the result)"));
  if (o.notice && converted && !converted->why_not().empty())
    o.notice(fmt::format("{}: the converted model is not kept: {}", o.model, converted->why_not()));
  std::shared_ptr<const Weights> weights = load_watched(source, threads);
  if (keep) converted->keep(weights, o.notice);
  return {std::move(weights), std::move(tokenizer)};
}

// The model of the options, or its converted file in the cache folder.
OpenModel open_converted(ConvertedModel& converted, const EngineOptions& o, int threads) {
  const auto waits = [&] {
    if (o.wait) o.wait(fmt::format("{}: another chaski converts it, please wait", o.model));
  };
  if (auto kept = converted.find_or_lock(o.verify, threads, o.notice, waits))
    return {source_of(kept), kept, true};
  return open_model(o.model, o.tokenizer);
}

// The CPU reserves addresses for at least this many full contexts. Memory is taken when pages are
// first written.
constexpr int64_t kContexts = 16;

// Reduces `pages` to about `bytes` bytes, but not below `one`, the pages of a session. Recurrent
// states take at most half of it.
void limit_pages(const StateLayout& states, uint64_t bytes, std::span<const int64_t> one,
                 std::vector<int64_t>& pages) {
  const auto limit = [&](size_t i, double share) {
    const bool alone = states.pools[i].recurrent;  // only pages of cells are stored in groups
    const auto part = int64_t(double(pages[i]) * std::min(share, 1.0));
    const int64_t most = alone ? part : part / kPageGroup * kPageGroup,
                  least = alone ? one[i] : whole_groups(one[i]);
    pages[i] = std::clamp(most, std::min(least, pages[i]), pages[i]);
  };
  for (const bool recurrent : {true, false}) {
    uint64_t all = 0, taken = 0;
    for (size_t i = 0; i < pages.size(); ++i)
      (states.pools[i].recurrent == recurrent ? all : taken) +=
          uint64_t(pages[i]) * states.pools[i].page_bytes;
    const uint64_t left = recurrent ? bytes / 2 : bytes - std::min(bytes, taken);
    for (size_t i = 0; i < pages.size(); ++i)
      if (states.pools[i].recurrent == recurrent && all > 0) limit(i, double(left) / double(all));
  }
}

// The size of each pool in pages.
std::vector<int64_t> host_pages(const StateLayout& states, int context, int pass,
                                const EngineOptions& o) {
  const std::vector<int64_t> one = pages_of_session(states.pools, context, pass);
  uint64_t bytes = 0, of_cells = 0;  // of a session
  for (size_t i = 0; i < one.size(); ++i) {
    const uint64_t of_pool = uint64_t(one[i]) * states.pools[i].page_bytes;
    bytes += of_pool, of_cells += states.pools[i].recurrent ? 0 : of_pool;
  }
  int64_t contexts = std::max<int64_t>(kContexts, o.sessions);
  // ulimit -v limits addresses, so few of them are reserved then; without --ctx perhaps for less
  // than a context.
  double share = 1;
  if (const auto left = available_addresses(); left && uint64_t(contexts) * bytes > *left / 2) {
    contexts = std::max(o.sessions, 1);
    const uint64_t others = uint64_t(contexts) * (bytes - of_cells),
                   for_cells = *left / 2 - std::min(others, *left / 2);
    if (o.context == 0 && of_cells > 0)
      share = std::min(1.0, double(for_cells) / double(uint64_t(contexts) * of_cells));
  }
  std::vector<int64_t> pages;
  for (size_t i = 0; i < one.size(); ++i) {
    const uint64_t page = std::max<size_t>(states.pools[i].page_bytes, 1);
    const int64_t most = int64_t((uint64_t(1) << 40) / page) + 1;
    const double wanted = double(contexts * one[i]) * (states.pools[i].recurrent ? 1 : share);
    pages.push_back(whole_groups(std::min(std::max(int64_t(wanted), int64_t(1)), most)));
  }
  if (o.most_state_bytes > 0) limit_pages(states, o.most_state_bytes, one, pages);
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
  const std::vector<const Weight*> read = weights_of(stage_graph(model, all_layers(model), one));
  for (const Weight* w : extras)
    if (std::ranges::find(read, w) == read.end())
      fail(Exit::bad_file,
           "{}: tensor {} is unexpected: the model uses no column order or outliers for its weight",
           path, escaped(w->info.name));
}

// Weights that a token reads whole. Of the others it reads some rows or experts; there, a huge page
// would bring megabytes from the disk for a few kilobytes.
void prefer_huge_pages(const Model& model, const Mapping& file) {
  const bool head = has_head(model);
  for (const Model::BoundWeight& w : model.weights)
    if (is_read_whole(w.role, head))
      file.prefer_huge_pages({w.weight->data, w.weight->info.bytes()});
}

}  // namespace

struct Engine::Impl {
  std::shared_ptr<const Weights> weights;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  int context = 0, threads = 0;
  Format kv_format = Format::f16;
  std::string rope_scaling;
  KvCache kv;
  std::shared_ptr<Crew> crew;
  // of a mapped model that is larger than memory
  std::unique_ptr<ExpertCache> experts;
  std::unique_ptr<WeightStream> stream;
  std::unique_ptr<Pipeline> pipeline;
  std::shared_ptr<Engine> target;
  std::unique_ptr<ConvertedModel> converted;  // writes the model into the cache folder

  void open(std::shared_ptr<const Weights> weights, const EngineOptions& o, int threads,
            const Placement* wanted = nullptr);
  void bind(std::shared_ptr<const Weights> bound);
  void open_pools(const EngineOptions& o);
  void open_experts(const EngineOptions& o);
  void open_stream(const EngineOptions& o);
  ~Impl();
};

// What was learned about the experts helps the next run.
Engine::Impl::~Impl() {
  try {
    if (experts && experts->facts().tokens > 0)
      keep_expert_uses(weights->path, weights->state, experts->uses());
  } catch (const std::exception&) {  // memory is short; the next run learns again
  }
}

void Engine::Impl::bind(std::shared_ptr<const Weights> bound) {
  weights = std::move(bound);
  if (!model) {
    model = bind_model(*weights);
    expect_all_read(*model, weights->path);
  }
  if (!tokenizer) tokenizer = tokenizer_of(weights->meta);
}

void Engine::Impl::open(std::shared_ptr<const Weights> bound, const EngineOptions& o, int most,
                        const Placement* wanted) {
  bind(std::move(bound));
  if (o.notice && tokenizer && !tokenizer->remark().empty()) o.notice(tokenizer->remark());
  Placement placement = settle(*model, o, weights->path);
  if (wanted) placement.stages = wanted->stages;
  context = placement.context, kv_format = o.kv, rope_scaling = o.rope_scaling;
  crew = Crew::shared(most, o.threads_fixed), threads = std::min(most, crew->size());
  kv.states = states_of(*model, all_layers(*model), o.kv);
  pipeline = std::make_unique<Pipeline>(*model, kv.states);
  pipeline->max_batch = placement.max_batch;
  for (const StagePlace& place : placement.stages)
    pipeline->add(open_stage(place, {*model, pipeline->batch, o, crew, threads}));
  ENSURE(pipeline->stages().back()->layers().end == int(model->n_layers), "stages run all layers");
  open_pools(o);
  if (o.link) return;  // a rank needs only its rows in memory
  const CpuStage* const cpu = pipeline->cpu();
  const bool mapped = weights->mapping != nullptr,
             all_on_cpu = cpu && cpu->layers().count() == int(model->n_layers);
  if (mapped) prefer_huge_pages(*model, *weights->mapping);
  if (uses_expert_memory(*model, mapped, cpu != nullptr, weights->path, o)) open_experts(o);
  if (may_stream(*model, mapped, all_on_cpu, weights->path, o)) open_stream(o);
}

void Engine::Impl::open_experts(const EngineOptions& o) {
  const int positions = o.context > 0 ? context : std::min(context, kDefaultPositions);
  const std::optional<ExpertRoom> room =
      expert_room(*model, pipeline->cpu()->layers().end, positions, o, threads);
  if (!room) return;
  expect_expert_memory(o, room->weights, crew->size());
  const uint64_t least = least_bytes(room->weights, crew->size());
  experts = ExpertCache::make(weights->mapping, room->weights, room->bytes, crew->size(),
                              kept_expert_uses(weights->path, weights->state));
  if (experts) pipeline->cpu()->use_experts(experts.get());
  if (!o.notice || (experts && o.expert_memory > 0)) return;
  if (!experts && room->bytes >= least)
    return o.notice(weights->path +
                    " was replaced while it was opened, so its experts are read from the mapping "
                    "of the old file");
  o.notice(experts
               ? fmt::format(
                     "{}: weights and context do not fit into memory: {} of {} of "
                     "experts stay in it, the others are read from the file when they are chosen",
                     weights->path, size_text(room->bytes), size_text(room->all))
               : fmt::format("{}: weights and context do not fit into memory, and {} are left "
                             "for experts, which need {}; so every token reads the mapped file",
                             weights->path, size_text(room->bytes), size_text(least)));
}

void Engine::Impl::open_stream(const EngineOptions& o) {
  const int positions = o.context > 0 ? context : std::min(context, kDefaultPositions);
  const std::optional<StreamRoom> room = stream_room(*model, positions, o, threads);
  if (!room) return;
  if (room->streamed.empty()) {
    if (o.notice)
      o.notice(fmt::format(
          "{}: weights and context do not fit into memory: the layers need at least {}, {} are "
          "left. Every token reads the mapped file",
          weights->path, size_text(room->least), size_text(room->bytes)));
    return;
  }
  stream = WeightStream::make(weights->mapping, room->streamed, room->kept);
  if (stream) pipeline->cpu()->use_stream(stream.get());
  if (o.notice && !stream)
    o.notice(weights->path +
             " was replaced while it was opened, so its weights are read from the mapping of the "
             "old file");
  if (o.notice && stream && o.weight_memory == 0)
    o.notice(fmt::format(
        "{}: weights and context do not fit into memory: {} of {} of weights are read from "
        "the file for every token",
        weights->path, size_text(room->a_pass), size_text(weights->bytes())));
}

// All stages use the same page numbers, so a pool has as many pages as the smallest stage.
void Engine::Impl::open_pools(const EngineOptions& o) {
  std::vector<int64_t> pages;
  for (const auto& stage : pipeline->stages())
    if (const std::vector<int64_t> room = stage->room(); !room.empty()) {
      if (pages.empty()) pages = room;
      for (size_t i = 0; i < pages.size(); ++i) pages[i] = std::min(pages[i], room[i]);
    }
  if (pages.empty()) pages = host_pages(kv.states, context, pipeline->max_batch, o);
  for (const auto& stage : pipeline->stages()) stage->reserve(pages);
  for (size_t i = 0; i < pages.size(); ++i)
    kv.pools.emplace_back(
        pages[i],
        [to_stages = pipeline.get(), i](int32_t from, int32_t to) {
          to_stages->copy_page(int(i), from, to);
        },
        PageMemory{pipeline->host_page_bytes(int(i)), !kv.states.pools[i].recurrent});
  // With input rows the tokens alone do not determine a page.
  if (!kv.pools.empty() && model->row_columns == 0) kv.prefixes.emplace(kv.pools);
  // Idle pages take no new memory beyond what was promised to sessions (memory_need.h). Without
  // --ctx that is kDefaultPositions a session.
  const auto promised = pages_of_session(
      kv.states.pools, o.context == 0 ? std::min(context, kDefaultPositions) : context,
      pipeline->max_batch);
  uint64_t usual = 0;
  for (size_t i = 0; i < kv.pools.size(); ++i)
    usual += uint64_t(std::max(o.sessions, 1) * promised[i]) * kv.states.pools[i].page_bytes;
  const double share =
      o.most_idle_bytes > 0 && usual > 0 ? double(o.most_idle_bytes) / double(usual) : 1;
  for (size_t i = 0; i < kv.pools.size(); ++i)
    kv.pools[i].keep_within(int64_t(double(std::max(o.sessions, 1) * promised[i]) * share));
}

Engine::Engine() : impl_(std::make_unique<Impl>()) {}
Engine::~Engine() = default;

std::shared_ptr<Engine> Engine::open(const EngineOptions& o) {
  check_options(o);  // wrong options are refused before the file is opened
  const int threads = thread_count(o);
  std::shared_ptr<Engine> e(new Engine);
  e->impl_->converted = std::make_unique<ConvertedModel>(o.model, kept_of(o));
  OpenModel model = open_converted(*e->impl_->converted, o, threads);
  Opened opened = open_weights(std::move(model), e->impl_->converted.get(), o, threads);
  e->impl_->tokenizer = std::move(opened.tokenizer);
  e->impl_->open(std::move(opened.weights), o, threads);
  return e;
}

std::shared_ptr<Engine> Engine::open(OpenModel model, const EngineOptions& o) {
  const int threads = thread_count(o);
  std::shared_ptr<Engine> e(new Engine);
  Opened opened = open_weights(std::move(model), nullptr, o, threads);
  e->impl_->tokenizer = std::move(opened.tokenizer);
  e->impl_->open(std::move(opened.weights), o, threads);
  return e;
}

std::shared_ptr<Engine> Engine::random(const ShapeOptions& shape, const EngineOptions& o) {
  check_options(o);
  std::shared_ptr<Engine> e(new Engine);
  const ModelSource source = random_source(shape);
  expect_memory(source, false, o);
  e->impl_->open(load(source, 1), o, thread_count(o));
  return e;
}

std::shared_ptr<Engine> Engine::over(std::shared_ptr<const Weights> weights, const EngineOptions& o,
                                     const Placement* placement) {
  std::shared_ptr<Engine> e(new Engine);
  e->impl_->open(std::move(weights), o, thread_count(o), placement);
  return e;
}

std::shared_ptr<Engine> Engine::draft_head(std::shared_ptr<Engine> target,
                                           std::unique_ptr<Model> model,
                                           std::shared_ptr<const Weights> weights, int sessions) {
  EngineOptions o;
  o.device = "cpu", o.threads = target->threads(), o.context = target->context_length();
  o.kv = target->kv_format(), o.sessions = sessions;
  std::shared_ptr<Engine> e(new Engine);
  e->impl_->target = std::move(target), e->impl_->model = std::move(model);
  e->impl_->open(std::move(weights), o, o.threads);
  return e;
}

std::shared_ptr<Engine> Engine::with(const EngineOptions& o) const {
  return over(impl_->weights, o);
}

void Engine::wait_until_kept() {
  if (impl_->converted) impl_->converted->wait();
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
int Engine::hidden_size() const { return int(impl_->pipeline->columns(Result::hidden)); }
int Engine::context_length() const { return impl_->context; }
int Engine::batch_length() const { return impl_->pipeline->max_batch; }
Format Engine::kv_format() const { return impl_->kv_format; }
const std::string& Engine::rope_scaling() const { return impl_->rope_scaling; }
const std::shared_ptr<Engine>& Engine::target() const { return impl_->target; }
const Model& Engine::model() const { return *impl_->model; }
const std::shared_ptr<const Weights>& Engine::weights() const { return impl_->weights; }
KvCache& Engine::kv_cache() { return impl_->kv; }
const KvCache& Engine::kv_cache() const { return impl_->kv; }
Pipeline& Engine::pipeline() { return *impl_->pipeline; }
const Pipeline& Engine::pipeline() const { return *impl_->pipeline; }
int Engine::threads() const { return impl_->threads; }

double Engine::threads_used() const {
  CpuStage* const cpu = impl_->pipeline->cpu();
  return cpu ? cpu->executor().threads_used() : 0;
}

std::string Engine::isa() const {
  const CpuStage* const cpu = impl_->pipeline->cpu();
  return cpu ? cpu->backend().name : cpu_backend().name;
}

std::string Engine::memory() const {
  const std::string device = impl_->pipeline->stages().back()->device();
  return device == "cpu" ? cpu_with(threads()) : device;
}

double Engine::memory_bandwidth() const {
  const auto stages = impl_->pipeline->stages();
  for (const auto& stage : stages)
    if (stage->device() != stages.back()->device()) return 0;
  return kept_bandwidth(memory());
}

std::string Engine::device() const {
  std::string devices;
  for (const auto& stage : impl_->pipeline->stages()) {
    const std::string device = stage->device();
    const int layers = stage->layers().count(), all = int(impl_->model->n_layers);
    if (device == "cpu") continue;
    devices += (devices.empty() ? "" : ", ") + device;
    if (layers < all) devices += fmt::format(", {} of {} layers", layers, all);
  }
  return devices.empty() ? "cpu" : devices;
}

uint64_t Engine::file_bytes() const { return impl_->weights->bytes(); }

uint64_t Engine::weight_bytes(int sequences) const {
  return weight_bytes_a_pass(*impl_->model, sequences);
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
                      [&](const KvType& t) { return t.format == impl_->kv_format; })
      ->name;
}

std::optional<ExpertFacts> Engine::expert_facts() const {
  if (!impl_->experts) return std::nullopt;
  return impl_->experts->facts();
}

uint64_t Engine::streamed_bytes() const {
  return impl_->stream ? impl_->stream->bytes_a_pass() : 0;
}

StateBytes Engine::states() const { return chaski::state_bytes(impl_->kv.states); }

uint64_t Engine::most_idle_bytes() const {
  const KvCache& kv = impl_->kv;
  uint64_t bytes = 0;
  for (size_t i = 0; i < kv.pools.size(); ++i)
    bytes += uint64_t(std::min(kv.pools[i].within(), kv.pools[i].size())) *
             kv.states.pools[i].page_bytes;
  return bytes;
}

uint64_t Engine::state_bytes(int positions) const {
  uint64_t sum = 0;
  for (const StateLayout::Pool& p : impl_->kv.states.pools) {
    const int seen = p.window > 0 ? std::min(p.window, positions) : positions;
    sum += p.recurrent ? p.page_bytes : p.page_bytes / kPage * uint64_t(seen);
  }
  return sum;
}

}  // namespace chaski
