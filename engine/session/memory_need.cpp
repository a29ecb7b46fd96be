#include "engine/session/memory_need.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/pages/page_table.h"
#include "engine/passes/draft.h"
#include "engine/passes/placement.h"
#include "engine/sampling/steps/candidates.h"
#include "engine/shelf/substitute_formats.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/reading.h"

namespace chaski {

namespace {

// The address of all matrices, whose data are never read.
alignas(64) std::byte nowhere[64];

uint64_t aligned_bytes(const TensorInfo& t) { return (t.bytes() + 63) / 64 * 64; }

}  // namespace

ShapedModel::ShapedModel(const ModelSource& source) {
  shapes_.path = source.path, shapes_.meta = source.meta;
  for (const TensorSource& t : source.tensors) {
    std::byte* data = nowhere;
    if (!t.info.tiled()) t.read(0, 1, data = vectors_.emplace_back(t.info.bytes()).data());
    shapes_.tensors.push_back({t.info, data});
  }
  if (source.drop_pages) source.drop_pages();
  model_ = bind_model(shapes_);
}

bool has_head(const Model& model) {
  return std::ranges::any_of(model.weights, [](const auto& w) { return w.role == Role::head; });
}

bool is_read_whole(Role role, bool has_head) {
  return role == Role::matmul || role == Role::heads || role == Role::outliers ||
         role == Role::head || role == Role::router || (role == Role::token_table && !has_head);
}

uint64_t weight_bytes_a_pass(const Model& model, int64_t tokens) {
  const bool head = has_head(model);
  double sum = 0;
  for (const auto& [role, weight, experts, chosen] : model.weights)
    if (is_read_whole(role, head))
      sum += double(weight->info.bytes());
    else if (role == Role::experts)
      sum += double(weight->info.bytes()) / double(experts) *
             different_experts(double(experts), double(chosen), double(tokens));
  return uint64_t(std::llround(sum));
}

ImaginedPass::ImaginedPass(const Model& model, int layers, Format kv, int from, int end,
                           int outputs, RankShare* share) {
  where_.states = states_of(model, {0, layers}, kv, share);
  const size_t n = size_t(end - from), pools = where_.states.pools.size();
  pages_.resize(size_t(end + kPage - 1) / kPage);
  std::iota(pages_.begin(), pages_.end(), 0);
  batch_.tokens.resize(n), batch_.sequences.resize(n);
  batch_.positions.resize(n), batch_.outputs.resize(size_t(outputs));
  std::iota(batch_.positions.begin(), batch_.positions.end(), from);
  std::iota(batch_.outputs.begin(), batch_.outputs.end(), int32_t(n) - outputs);
  batch_.cells = batch_.positions;
  batch_.tables.assign(pools, {pages_.data()}), batch_.stores.resize(pools);
  for (size_t i = 0; i < pools; ++i)
    for (int k = from; k < end && !where_.states.pools[i].recurrent; ++k)
      batch_.stores[i].push_back({k - from, k / kPage, k % kPage});
  plan_readings(batch_, where_.states.pools);
  plan_ = std::make_unique<Plan>(stage_graph(model, {0, layers}, batch_), cpu_backend(), batch_,
                                 where_, Fuse::all, share);
  plan_->bind(nowhere);
  plan_->prepare();
}

Footprint::Footprint(const Model& model, int layers, Format kv, int threads, RankShare* share)
    : model_(model), layers_(layers), kv_(kv), threads_(threads), share_(share) {
  for (const Model::BoundWeight& w : model.weights) weights_ += aligned_bytes(w.weight->info);
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  const Graph graph = stage_graph(model, {0, layers}, one);
  layout_ = states_of(model, {0, layers}, kv, share);
  for (const RopeSpec& rope : graph.ropes) angles_ += uint64_t(rope.dim) * sizeof(float);
}

uint64_t Footprint::weights_in(Format format) const {
  uint64_t sum = 0;
  for (const Model::BoundWeight& w : model_.weights) {
    TensorInfo as = w.weight->info;
    const bool head = w.role == Role::head || w.role == Role::token_table;
    const Format least = head ? least_of_head(format, as.cols) : format,
                 to = info(least).bits() > info(format).bits() ? least : format;
    if (as.tiled() && !keeps_format(w.role) && as.cols % info(to).block == 0 &&
        info(as.format).bits() > info(to).bits())
      as.format = to;
    sum += aligned_bytes(as);
  }
  return sum;
}

uint64_t Footprint::states(int context) const {
  uint64_t sum = 0;
  const std::vector<int64_t> pages =
      pages_of_session(layout_.pools, context, std::min(kCpuBatch, context));
  for (size_t i = 0; i < pages.size(); ++i)
    sum += PageMemory{layout_.pools[i].page_bytes, !layout_.pools[i].recurrent}.bytes(pages[i]);
  // Angles are computed for up to twice the needed positions (cpu_stage.cpp).
  const auto positions =
      std::min<int64_t>(2 * int64_t(context) + 255, std::max<int64_t>(context, model_.context));
  return sum + uint64_t(positions) * angles_;
}

uint64_t Footprint::activations(int context) const {
  if (layers_ == 0) return 0;
  const int widest = std::min(kCpuBatch, context), drafted = std::min(Draft::kMost + 1, widest);
  uint64_t arena = 0, own = 0, shared = 0;
  for (const auto& [tokens, outputs] :
       {std::pair(widest, 1), std::pair(drafted, drafted), std::pair(1, 1)}) {
    const ImaginedPass pass(model_, layers_, kv_, context - tokens, context, outputs, share_);
    arena = std::max<uint64_t>(arena, pass.plan().arena_bytes());
    own = std::max<uint64_t>(own, pass.plan().scratch_bytes());
    shared = std::max<uint64_t>(shared, pass.plan().shared_bytes());
  }
  // Logits that a pass of several batches keeps, and the sampler's candidates of one row.
  const uint64_t drawn =
      uint64_t(model_.vocab) * (uint64_t(drafted) * sizeof(float) + sizeof(Candidate));
  return arena + own * uint64_t(threads_) + shared + kSharedCounters * sizeof(uint32_t) + drawn;
}

int Footprint::longest_context(uint64_t bytes, int most) const {
  const auto fits = [&](int context) {
    const uint64_t kept = states(context);
    return kept <= bytes && kept + activations(context) <= bytes;
  };
  if (fits(most)) return most;
  int low = 0;
  for (int high = most / kPage; low < high;) {
    const int middle = low + (high - low + 1) / 2;
    if (fits(middle * kPage))
      low = middle;
    else
      high = middle - 1;
  }
  return low * kPage;
}

namespace {

// The requested settings, and the memory that they may take.
struct Wanted {
  const Model& model;
  int layers, threads, context;
  uint64_t have;
  bool mapped;
  RankShare* share;
};

// Returns nothing if less than a page of context fits, or if `to` makes no weight smaller.
std::optional<Remedy> remedy_with(const Wanted& w, Format kv, std::optional<Format> to) {
  try {
    const Footprint need(w.model, w.layers, kv, w.threads, w.share);
    const uint64_t weights = to ? need.weights_in(*to) : need.weights(),
                   taken = w.mapped && !to ? 0 : weights;
    if ((to && weights >= need.weights()) || taken > w.have) return std::nullopt;
    const int fits = need.longest_context(w.have - taken, w.context);
    if (fits < std::min(w.context, kPage)) return std::nullopt;
    return Remedy{fits, kv, to, weights + need.states(fits) + need.activations(fits)};
  } catch (const Error& e) {
    if (e.code != Exit::usage) throw;
    return std::nullopt;  // the KV cache of this model cannot have this format
  }
}

}  // namespace

uint64_t promised(uint64_t have) {
  constexpr uint64_t kOfProgram = 4 << 20;
  return have - std::min(have, kOfProgram + kReservedPages);
}

uint64_t prudent(uint64_t have, int threads) {
  constexpr uint64_t kOfThread = 72 << 20;  // addresses of a stack and of malloc's arena
  if (const auto addresses = available_addresses())
    have = std::min(have, *addresses - std::min(*addresses / 2, uint64_t(threads) * kOfThread));
  // The free memory of two starts in one control group differs by up to this.
  constexpr uint64_t kVaries = 2 << 20;
  return std::min(have - have / 16, promised(have - std::min(have, kVaries)));
}

std::vector<Remedy> remedies(const Model& model, int layers, const EngineOptions& o, int threads,
                             int context, uint64_t have, bool mapped) {
  const auto share = share_of(o);
  const int most = model.context > 0 ? int(std::min<int64_t>(context, model.context)) : context;
  const Wanted wanted{model, layers, threads, most, prudent(have, threads), mapped, share.get()};
  std::vector<Remedy> found;
  for (const std::optional<Format> to :
       {std::optional<Format>(), {Format::q8}, {Format::q4}, {Format::q3}, {Format::q2}})
    for (const Format kv : {o.kv, Format::q8, Format::q4_0}) {
      if (kv != o.kv && info(kv).bits() >= info(o.kv).bits()) continue;
      const std::optional<Remedy> way = remedy_with(wanted, kv, to);
      // A larger change is listed only if it leaves a longer context.
      if (way && (found.empty() || way->context > found.back().context)) found.push_back(*way);
    }
  return found;
}

std::string remedy_text(const Remedy& r, const EngineOptions& o, int context) {
  std::string flags;
  if (r.kv != o.kv) flags += fmt::format("--kv {}", info(r.kv).name);
  if (r.context < context) flags += fmt::format("{}-c {}", flags.empty() ? "" : " ", r.context);
  if (!r.weights) return flags;
  const std::string_view type = info(*r.weights).name;
  return fmt::format("weights in {} (chaski quantize IN OUT --type {}){}", type, type,
                     flags.empty() ? "" : " with " + flags);
}

std::string advice_to_map(const ModelSource& source, bool mapped, int layers) {
  std::error_code none;
  if (mapped || layers == 0 || !std::filesystem::exists(source.path, none)) return "";
  if (is_quipu(source.path))
    return "without --load copy the weights of a .quipu file stay in the file";
  const auto path = std::filesystem::weakly_canonical(source.path, none);
  const bool is_folder = std::filesystem::is_directory(path, none);
  const std::string made = (is_folder ? path.filename() : path.stem()).string() + ".quipu";
  return fmt::format("the weights of a .quipu file stay in the file: chaski convert {} {}",
                     source.path, made);
}

void expect_memory(const ModelSource& source, bool mapped, const EngineOptions& o) {
  if (mapped && o.context == 0) return;
  const auto free = available_memory();
  if (!free) return;
  ShapedModel shaped(source);
  EngineOptions quiet = o;
  quiet.notice = {};
  const Placement where = settle(*shaped, quiet, source.path);
  const uint64_t have = promised(*free);
  const int threads = thread_count(o);
  const auto share = share_of(o);
  const Footprint need(*shaped, where.cpu_layers(), o.kv, threads, share.get());
  const int context = o.context > 0 ? where.context : std::min(where.context, kPage);
  const uint64_t weights = mapped ? 0 : need.weights(),
                 others = need.states(context) + need.activations(context);
  if (weights <= have && others <= have - weights) return;
  const std::vector<Remedy> ways =
      remedies(*shaped, where.cpu_layers(), o, threads, where.context, *free, mapped);
  constexpr size_t kShown = 3;
  std::string advice;
  for (size_t i = 0; i < std::min(ways.size(), kShown); ++i)
    advice +=
        fmt::format("{} {}", advice.empty() ? ";" : ", or", remedy_text(ways[i], o, where.context));
  // All of the model's own context: no flag shortens it.
  const bool own = ways.size() == 1 && !ways[0].weights && ways[0].kv == o.kv &&
                   ways[0].context == (*shaped).context;
  if (!ways.empty())
    advice += ways.size() > 1 ? " would fit" : own ? ", the model's own maximum, fits" : " fits";
  if (const std::string map = advice_to_map(source, mapped, where.cpu_layers()); !map.empty())
    advice += "; " + map;
  if (weights > have)
    fail(Exit::memory, "{}: the weights need {} of memory, {} are available{}", source.path,
         size_text(weights), size_text(have), advice);
  fail(Exit::memory, "{}: a context of {} needs {}{}, {} of memory are available{}", source.path,
       context, size_text(others),
       mapped ? "" : fmt::format(" in addition to the weights' {}", size_text(weights)),
       size_text(have), advice);
}

std::optional<uint64_t> weight_bytes_a_token(const ModelSource& source) {
  try {
    return weight_bytes_a_token(*ShapedModel(source));
  } catch (const Error&) {
    return std::nullopt;
  }
}

uint64_t memory_when_open(const ModelSource& source, const EngineOptions& o) {
  ShapedModel shaped(source);
  EngineOptions quiet = o;
  quiet.notice = {};
  const Placement where = settle(*shaped, quiet, source.path);
  const Footprint need(*shaped, int((*shaped).n_layers), o.kv, thread_count(o));
  const int context = o.context > 0 ? where.context : std::min(where.context, kDefaultPositions);
  return need.weights() + need.states(context) + need.activations(context);
}

std::optional<uint64_t> memory_for_models() {
  const auto have = available_memory();
  return have ? std::optional(prudent(*have, 1)) : std::nullopt;
}

std::optional<StateBytes> state_bytes(const ModelSource& source, Format kv) {
  try {
    ShapedModel model(source);
    return state_bytes(states_of(*model, all_layers(*model), kv));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace chaski
