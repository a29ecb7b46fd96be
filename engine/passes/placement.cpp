#include "engine/passes/placement.h"

#include <algorithm>
#include <charconv>

#include "engine/passes/expert_stage.h"
#include "engine/passes/rank_stage.h"
#include "ggml-like-tensor/cores.h"
#include "ggml-like-tensor/split.h"

namespace chaski {

namespace {

struct DeviceChoice {
  bool cpu = false, must = false;  // must: there is no fallback to the CPU
  int index = -1;                  // -1: any
};

std::string asked_layers(const EngineOptions& o) {
  return o.gpu_layers == kAllLayers ? "all" : std::to_string(o.gpu_layers);
}

DeviceChoice device_choice(const EngineOptions& o) {
  DeviceChoice choice;
  if (o.device == "cpu") {
    choice.cpu = true;
  } else if (o.device != "auto") {
    choice.must = true;
    const std::string_view prefix = "cuda:";
    const char *at = o.device.data() + std::min(prefix.size(), o.device.size()),
               *end = o.device.data() + o.device.size();
    const bool numbered = o.device.starts_with(prefix) &&
                          std::from_chars(at, end, choice.index).ptr == end && choice.index >= 0 &&
                          at < end;
    if (o.device != "cuda" && !numbered)
      fail(Exit::usage, "--device is {}, expected auto, cpu or cuda[:N]", escaped(o.device));
  }
  if (o.gpu_layers != kAllThatFit && (choice.cpu || o.gpu_layers < 0))
    fail(
        Exit::usage,
        "--gpu-layers is {} with --device {}, expected 0 or more, and a device that is not the CPU",
        asked_layers(o), o.device);
  if (o.cpu_experts && (choice.cpu || o.gpu_layers == 0))
    fail(Exit::usage, "--cpu-experts is given with {}, expected a device for the other layers",
         choice.cpu ? "--device cpu" : "--gpu-layers 0");
  choice.cpu |= o.gpu_layers == 0;
  choice.must &= !choice.cpu;
  return choice;
}

// The chosen device, or the one with the most free memory. Throws Error(device) if there is none.
CudaDevice find_device(const DeviceChoice& choice) {
  CudaDevices all = cuda_devices(true);
  const bool any = !all.list.empty();
  if (choice.index >= 0)
    std::erase_if(all.list, [&](const CudaDevice& d) { return d.index != choice.index; });
  if (!all.list.empty())
    return *std::max_element(all.list.begin(), all.list.end(),
                             [](auto& a, auto& b) { return a.free_bytes < b.free_bytes; });
  if (!choice.must) fail(Exit::device, "{}", all.why_none);
  const std::string name = choice.index < 0 ? "cuda" : fmt::format("cuda:{}", choice.index);
  fail(Exit::device, "--device is {}, but {}", name,
       any ? "there is no such device" : all.why_none);
}

// Finds the largest number of layers that fits on a device.
class Fitting {
 public:
  Fitting(const Model& model, const EngineOptions& o, const CudaDevice& device)
      : model_(model),
        device_(device),
        kv_(o.kv),
        sessions_(o.sessions),
        cpu_experts_(o.cpu_experts),
        layers_(int(model.n_layers)),
        outputs_(std::max(o.outputs, o.sessions)),
        fixed_context_(o.context > 0),
        own_context_(int(o.context ? o.context : model.context)) {
    wanted_.device = device.index, wanted_.shared_limit = device.shared_limit;
    Batch one;
    one.tokens.resize(1), one.outputs.resize(1);
    Graph whole(one);
    model.build(whole);
    for (int layer = layers_ - 1; layer > 0; --layer)
      if (can_split(whole, layer)) counts_.push_back(layers_ - layer);
    counts_.push_back(layers_);
  }

  // The largest number of last layers, up to `wanted`, that can be split off, or 0.
  int possible(int wanted) const {
    const auto above = std::upper_bound(counts_.begin(), counts_.end(), wanted);
    return above == counts_.begin() ? 0 : *(above - 1);
  }
  int least_possible() const { return counts_.front(); }

  Placement with(int on_device, int context) const {
    const Layers first{0, layers_ - on_device}, last{first.end, layers_};
    Placement p;
    p.context = context;
    p.max_batch = std::min(first.count() == 0 ? kDeviceBatch : kCpuBatch, context);
    CudaOptions wanted = wanted_;
    wanted.context = context, wanted.max_batch = p.max_batch;
    if (first.count() > 0) p.stages.push_back({first});
    p.stages.push_back({last,
                        device_needs(model_, last, kv_, sessions_, std::min(outputs_, p.max_batch),
                                     wanted, cpu_experts_),
                        cpu_experts_});
    return p;
  }
  bool fits(const Placement& p) const { return bytes_needed(p) <= device_.free_bytes; }
  uint64_t bytes_needed(const Placement& p) const {
    return cuda_bytes_needed(p.device()->weights, p.device()->options, device_.total_bytes);
  }
  int own_context() const { return own_context_; }
  int least_context() const {
    return fixed_context_ ? own_context_ : std::min(own_context_, kLeastContext);
  }

  // The longest context that fits with this many layers, in steps of an attention chunk. Nothing if
  // the shortest context does not fit.
  std::optional<Placement> longest(int on_device) const {
    if (Placement all = with(on_device, own_context_); fits(all)) return all;
    Placement best = with(on_device, least_context());
    if (!fits(best)) return std::nullopt;
    constexpr int kStep = 256;
    for (int low = best.context / kStep, high = own_context_ / kStep; low < high;) {
      const int middle = (low + high + 1) / 2;
      if (Placement p = with(on_device, middle * kStep); fits(p))
        best = std::move(p), low = middle;
      else
        high = middle - 1;
    }
    return best;
  }
  int most_layers() const {
    const auto too_many = std::partition_point(
        counts_.begin(), counts_.end(), [&](int n) { return fits(with(n, least_context())); });
    return too_many == counts_.begin() ? 0 : *(too_many - 1);
  }

 private:
  const Model& model_;
  const CudaDevice& device_;
  const Format kv_;
  const int sessions_;
  const bool cpu_experts_;
  const int layers_, outputs_;
  const bool fixed_context_;
  const int own_context_;
  std::vector<int> counts_;  // numbers of layers that can be on a device, ascending
  CudaOptions wanted_;
};

Placement on_cpu(const Model& model, const EngineOptions& o, const std::string& why) {
  if (!why.empty() && o.notice) o.notice("on the CPU: " + why);
  Placement p;
  p.stages = {{all_layers(model)}}, p.context = int(o.context ? o.context : model.context);
  return p;
}

Placement on_ranks(const Model& model, const EngineOptions& o, bool must_be_device) {
  if (must_be_device)
    fail(Exit::usage, "--device is {} with {} ranks, expected cpu", o.device, o.link->ranks());
  if (o.gpu_layers > 0)
    fail(Exit::usage, "--gpu-layers is {} with {} ranks, expected 0", asked_layers(o),
         o.link->ranks());
  if (o.cpu_experts)
    fail(Exit::usage, "--cpu-experts is for a GPU, expected one rank, found {}", o.link->ranks());
  if (o.expert_memory > 0)
    fail(Exit::usage, "--expert-memory is for one rank, found {}", o.link->ranks());
  if (o.weight_memory > 0)
    fail(Exit::usage, "--weight-memory is for one rank, found {}", o.link->ranks());
  if (model.row_columns > 0)
    fail(Exit::usage, "a draft head is computed by one rank, expected a model");
  if (!o.rank_speeds.empty()) expect_rank_speeds(o.rank_speeds, o.link->ranks());
  Placement p = on_cpu(model, o, "");
  p.stages[0].other = [](const StageSetup& s, Layers layers) {
    // Ranks that are threads of one process each need their own crew.
    const auto crew = std::make_shared<Crew>(s.threads, s.options.threads_fixed);
    return std::make_unique<RankStage>(s.model, layers, s.batch, s.options.kv, crew, s.threads,
                                       s.options.threads_fixed, s.options.link,
                                       s.options.link_engine, share_of(s.options));
  };
  return p;
}

std::string gigabytes(uint64_t bytes) { return fmt::format("{:.3g} GB", double(bytes) / 1e9); }

Placement on_device(const Model& model, const EngineOptions& o, const CudaDevice& device,
                    bool must) {
  const Fitting fitting(model, o, device);
  const int layers = int(model.n_layers),
            wanted = o.gpu_layers == kAllThatFit ? layers : fitting.possible(o.gpu_layers);
  if (wanted == 0)
    fail(Exit::usage,
         "--gpu-layers is {}, expected 0 or at least {}: the model cannot be split later",
         o.gpu_layers, fitting.least_possible());
  const std::string name = fmt::format("cuda:{} ({})", device.index, device.name);
  std::optional<Placement> p = fitting.longest(wanted);
  const auto say = [&](const std::string& line) {
    if (o.notice) o.notice(name + ": " + line);
  };
  if (wanted < std::min(o.gpu_layers, layers))
    say(fmt::format("{} of {} layers, because the model cannot be split elsewhere", wanted,
                    layers));
  if (!p) {
    const int most = fitting.most_layers();
    if (must || o.gpu_layers != kAllThatFit) {
      const Placement least = fitting.with(wanted, fitting.least_context());
      fail(Exit::memory,
           "{}: {} of {} layers with a context of {} need {} of device memory, {} are free; {}",
           name, wanted, layers, least.context, gigabytes(fitting.bytes_needed(least)),
           gigabytes(device.free_bytes),
           most > 0 ? fmt::format("--gpu-layers {} would fit", most) : "use --device cpu");
    }
    if (most == 0)
      return on_cpu(model, o,
                    fmt::format("{} has {} free, too little for one layer", name,
                                gigabytes(device.free_bytes)));
    p = fitting.longest(most);
    say(fmt::format("{} of {} layers fit into {}, the others run on the CPU", most, layers,
                    gigabytes(device.free_bytes)));
  }
  if (p->context < fitting.own_context())
    say(fmt::format("a context of {} fits, the model's own is {}", p->context,
                    fitting.own_context()));
  return std::move(*p);
}

void expect_kv_type(const EngineOptions& o) {
  const bool known = std::any_of(std::begin(kKvTypes), std::end(kKvTypes),
                                 [&](const KvType& t) { return t.format == o.kv; });
  if (!known)
    fail(Exit::usage, "--kv is {}, expected a format for keys and values", info(o.kv).name);
}

void expect_experts(const EngineOptions& o, const Model& m, const std::string& path) {
  const bool any = std::any_of(m.weights.begin(), m.weights.end(),
                               [](auto& w) { return w.role == Role::experts; });
  if (o.cpu_experts && !any)
    fail(Exit::usage, "--cpu-experts is given, but {} has no experts", path);
}

// A table of positions limits the context. Rotary positions have no limit, but beyond the model's
// own context it was not trained for them.
void expect_context(const EngineOptions& o, const Model& m, const std::string& path) {
  const bool ends = std::any_of(m.weights.begin(), m.weights.end(),
                                [](auto& w) { return w.role == Role::position_table; });
  if (o.context < 0 || (ends && o.context > m.context))
    fail(Exit::usage, "{}: --ctx is {}, expected 1 to {}: the model has no more positions", path,
         o.context, m.context);
  if (o.context <= m.context) return;
  if (o.notice)
    o.notice(fmt::format("{}: the context of {} is larger than the model's own of {}", path,
                         o.context, m.context));
}

struct Scaling {
  RopeScaling kind = RopeScaling::none;
  double factor = 1;
};

// Parses --rope-scaling. Returns nothing if the file's own scaling is used.
std::optional<Scaling> scaling_of(const std::string& wanted) {
  if (wanted.empty()) return std::nullopt;
  if (wanted == "none") return Scaling{};
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
  return Scaling{kind->second, factor};
}

void scale_rope(Model& m, const EngineOptions& o, const std::string& path) {
  const std::optional<Scaling> wanted = scaling_of(o.rope_scaling);
  if (wanted && !m.stretch_rope(wanted->kind, wanted->factor))
    fail(Exit::usage, "--rope-scaling is {}, but {} has no rotary positions", o.rope_scaling, path);
}

Placement place(const Model& model, const EngineOptions& o) {
  const DeviceChoice choice = device_choice(o);
  if (o.link) return on_ranks(model, o, choice.must);
  if (choice.cpu) return on_cpu(model, o, "");
  std::optional<CudaDevice> device;
  try {
    device = find_device(choice);
    return on_device(model, o, *device, choice.must);
  } catch (const Error& e) {
    if (choice.must || e.code != Exit::device) throw;
    if (o.gpu_layers != kAllThatFit)
      return on_cpu(model, o, fmt::format("--gpu-layers is {}, but {}", asked_layers(o), e.what()));
    return on_cpu(model, o, device || o.verbose ? e.what() : "");
  }
}

}  // namespace

int Placement::cpu_layers() const {
  int layers = 0;
  for (const StagePlace& place : stages)
    if (!place.device && !place.other) layers += place.layers.count();
  return layers;
}

const DeviceNeeds* Placement::device() const {
  for (const StagePlace& place : stages)
    if (place.device) return &*place.device;
  return nullptr;
}

std::unique_ptr<Stage> open_stage(const StagePlace& place, const StageSetup& setup) {
  const EngineOptions& o = setup.options;
  if (place.other) return place.other(setup, place.layers);
  if (!place.device)
    return std::make_unique<CpuStage>(setup.model, place.layers, setup.batch, o.kv, setup.crew,
                                      setup.threads, o.threads_fixed);
  auto backend = CudaBackend::open(place.device->weights, place.device->options);
  backend->upload(o.upload);
  if (place.cpu_experts)
    return std::make_unique<ExpertStage>(setup.model, place.layers, setup.batch, std::move(backend),
                                         setup.crew, setup.threads, o.threads_fixed);
  return std::make_unique<CudaStage>(setup.model, place.layers, setup.batch, std::move(backend));
}

void check_options(const EngineOptions& o) {
  const DeviceChoice choice = device_choice(o);
  if (choice.must) find_device(choice);
  scaling_of(o.rope_scaling);
}

int thread_count(const EngineOptions& o) {
  if (o.threads < 0 || o.threads > 1024)
    fail(Exit::usage, "--threads is {}, expected 1 to 1024, or 0 for all", o.threads);
  if (o.threads == 0) return physical_cores();
  return o.threads_fixed ? o.threads : std::min(o.threads, usable_cores());
}

Placement settle(Model& model, const EngineOptions& o, const std::string& path) {
  scale_rope(model, o, path);
  expect_kv_type(o);
  expect_experts(o, model, path);
  expect_context(o, model, path);
  model.expect_sessions(o.context ? o.context : model.context);
  Placement placement = place(model, o);
  model.expect_sessions(placement.context);  // a device may have room for less
  return placement;
}

void expect_rank_speeds(const std::vector<double>& speeds, int ranks) {
  if (int(speeds.size()) != ranks)
    fail(Exit::usage, "--rank-speeds has {} numbers, expected {}, one for each machine",
         speeds.size(), ranks);
}

std::unique_ptr<RankShare> share_of(const EngineOptions& o) {
  if (!o.link) return nullptr;
  return std::make_unique<RankShare>(
      o.link->rank(),
      o.rank_speeds.empty() ? std::vector<double>(size_t(o.link->ranks()), 1) : o.rank_speeds,
      o.link->least_bytes());
}

}  // namespace chaski
