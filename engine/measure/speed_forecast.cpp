#include "engine/measure/speed_forecast.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "engine/machine/bandwidth.h"
#include "engine/machine/cache_folder.h"
#include "engine/measure/bench.h"
#include "engine/passes/layer_of.h"
#include "engine/passes/placement.h"
#include "engine/passes/random_model.h"
#include "engine/session/memory_need.h"

namespace chaski {

namespace {

constexpr int64_t kLeastLayers = 2;

// Decoding is timed and predicted after kDepth tokens.
constexpr int kDepth = 48, kDecoded = 32;

constexpr const char* kLayers = "model.block_count";

int64_t layers_to_time(const ModelSource& source, const Model& model) {
  const int64_t all = source.meta.integer(kLayers);
  uint64_t layers = 0;
  for (const TensorSource& t : source.tensors)
    if (layer_of(t.info.name) >= 0) layers += t.info.bytes();
  const uint64_t read = weight_bytes_a_token(model), others = read - std::min(read, layers),
                 room = kMostProbe - std::min(kMostProbe, others);
  return std::min(all,
                  std::max(kLeastLayers, int64_t(double(room) / double(layers + 1) * double(all))));
}

// The first layers, and the tensors outside of layers. Vectors keep their numbers, because a graph
// may depend on them.
ModelSource beginning_of(const ModelSource& whole, int64_t layers) {
  ModelSource part{whole.path, whole.kind, whole.meta, {}, whole.storage};
  for (const auto& [key, value] : whole.meta.all())
    if (key.starts_with("tokenizer.")) part.meta.erase(key);
  part.meta.set_int(kLayers, layers);
  for (const TensorSource& t : whole.tensors)
    if (layer_of(t.info.name) < layers)
      part.tensors.push_back(t.info.tiled() ? random_tensor(t.info) : t);
  return part;
}

EngineOptions options_of_probe(const EngineOptions& o, const Model& model) {
  EngineOptions options;
  options.device = "cpu", options.kv = o.kv;
  options.threads = o.threads, options.threads_fixed = o.threads_fixed;
  options.context = int(std::min<int64_t>(model.context, kForecastPrompt));
  return options;
}

struct Probe {
  std::shared_ptr<Engine> engine;
  bool shortened = false;  // to one layer, because memory is short
};

// Some models cannot be cut: a list in their metadata has an entry for every layer.
Probe probe_of(const ModelSource& source, const Model& model, const EngineOptions& options,
               int threads) {
  const int64_t some = layers_to_time(source, model), all = source.meta.integer(kLayers);
  const auto engine_of = [&](int64_t layers) {
    return Engine::over(load(beginning_of(source, layers), threads), options);
  };
  if (some == all) return {engine_of(all)};
  try {
    return {engine_of(some)};
  } catch (const Error& e) {
    if (e.code == Exit::bad_file) return {engine_of(all)};
    if (e.code != Exit::memory || some == 1) throw;
    try {
      return {engine_of(1), true};
    } catch (const Error& one) {
      if (one.code != Exit::bad_file) throw;
    }
    throw;  // e
  }
}

// The work of a round of the whole model, without times.
Profile work_of(const Model& model, Format kv, int from, int end, int a_pass) {
  Profile work;
  for (int at = from; at < end; at += a_pass) {
    const int next = std::min(at + a_pass, end);
    const ImaginedPass pass(model, int(model.n_layers), kv, at, next, next == end ? 1 : 0);
    work.add(pass.plan(), std::vector<double>(pass.plan().steps.size()), false);
  }
  return work;
}

// The timed layers may be without the experts or the attention of later ones.
void expect_all_steps(const Profile& whole, const BenchCase& probe) {
  for (const auto& [name, step] : whole.steps)
    if (step.cost.bytes > 0 &&
        std::ranges::none_of(probe.profile, [&](const StepTime& s) { return s.name == name; }))
      fail(Exit::memory, "the speed cannot be predicted: none of the timed layers has the op {} {}",
           name.op, name.weight);
}

// The predicted seconds of the whole model, from the timed steps of the probe.
double seconds_of(const Profile& whole, const BenchCase& probe) {
  const bool prompt = probe.kind == BenchCase::Kind::prompt;
  double timed = 0, predicted = 0;
  for (const StepTime& s : probe.profile) {
    timed += s.seconds;
    const auto at = whole.steps.find(s.name);
    if (at == whole.steps.end()) continue;
    const double had = prompt ? s.work.operations : s.work.bytes,
                 has = prompt ? at->second.cost.flops : at->second.cost.bytes;
    predicted += s.seconds * (had > 0 ? has / had : at->second.calls / s.calls);
  }
  return probe.seconds.median * predicted / timed;
}

// Everything that the speed depends on.
std::string signature(const ModelSource& source, const EngineOptions& o, int threads) {
  std::string tensors = source.meta.str("general.architecture");
  for (const TensorSource& t : source.tensors)
    tensors += fmt::format("\n{} {} {} {}", t.info.name, info(t.info.format).name, t.info.rows,
                           t.info.cols);
  return fmt::format("a model {:016x}, keys and values in {}, {}, {}{}",
                     XXH3_64bits(tensors.data(), tensors.size()), info(o.kv).name,
                     cpu_backend().name, cpu_with(threads), o.threads_fixed ? " fixed" : "");
}

// Identifies the build, because kernels of another build have other speeds.
std::string this_program() {
  std::error_code none;
  const std::filesystem::path program = "/proc/self/exe";
  return fmt::format("measured by the chaski program of {} bytes, written at {}",
                     std::filesystem::file_size(program, none),
                     std::filesystem::last_write_time(program, none).time_since_epoch().count());
}

SpeedForecast measured(const std::shared_ptr<Engine>& probe, const Model& model,
                       const EngineOptions& o, const EngineOptions& options) {
  BenchOptions timed;
  const int pass = std::min(kCpuBatch, options.context);
  timed.prompts = {pass};
  timed.depths = {std::min(kDepth, options.context / 4)};
  timed.decode = std::min(kDecoded, options.context / 2);
  timed.repetitions = 3, timed.profile = true, timed.limits = false;
  const BenchResult result = bench({&probe, 1}, timed, [](const std::string&) {});
  const int depth = timed.depths[0] + timed.decode / 2;
  const Profile prompt = work_of(model, o.kv, 0, options.context, pass),
                token = work_of(model, o.kv, depth, depth + 1, 1);
  expect_all_steps(token, result.cases[1]);
  return {options.context / seconds_of(prompt, result.cases[0]),
          1 / seconds_of(token, result.cases[1])};
}

}  // namespace

SpeedForecast forecast_speed(const ModelSource& source, const Model& model, const EngineOptions& o,
                             bool measure_again,
                             const std::function<void(const std::string&)>& note) {
  const int threads = thread_count(o);
  const std::string of = signature(source, o, threads), place = speed_place(of),
                    text = kept_text(place), by = this_program();
  SpeedForecast kept;
  if (!measure_again && text.ends_with(by + "\n") &&
      std::istringstream(text) >> kept.prompt >> kept.decode && kept.prompt > 0 && kept.decode > 0)
    return kept;
  note("layers of this shape");
  const EngineOptions options = options_of_probe(o, model);
  const Probe probe = probe_of(source, model, options, threads);
  const SpeedForecast now = measured(probe.engine, model, o, options);
  if (probe.shortened) return now;  // with more free memory it is more exact
  keep_text(place, fmt::format("{} {} tokens per second, prompt and decode, of {}, {}\n",
                               now.prompt, now.decode, of, by));
  return now;
}

}  // namespace chaski
