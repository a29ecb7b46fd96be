#include "engine/measure/forecast.h"

#include <algorithm>

#include "cuda/backend.h"
#include "engine/machine/bandwidth.h"
#include "engine/passes/placement.h"
#include "engine/passes/random_model.h"
#include "engine/session/expert_memory.h"
#include "engine/session/stream_room.h"
#include "engine/shelf/converted.h"
#include "engine/shelf/model_file.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

namespace {

void add_device(Forecast& f, const DeviceNeeds& needs) {
  for (const CudaDevice& d : cuda_devices(true).list)
    if (d.index == needs.options.device) {
      f.device_needs = cuda_bytes_needed(needs.weights, needs.options, d.total_bytes);
      f.device_has = d.free_bytes;
    }
}

double bandwidth_of(int threads, bool measure_again, const ForecastOptions& o) {
  const std::string of = cpu_with(threads);
  if (const double kept = measure_again ? 0 : kept_bandwidth(of); kept > 0) return kept;
  o.note("the speed of memory");
  const double now = measure_read_bandwidth({.threads = threads});
  keep_bandwidth(of, now);
  return now;
}

}  // namespace

double Forecast::decode_at_the_end() const {
  return speed && bandwidth > 0 ? 1 / (1 / speed->decode + double(states) / bandwidth) : 0;
}

uint64_t room_for_weights(const ModelSource& source, const EngineOptions& o, uint64_t memory) {
  // Uses only the model and the options, so that the same command makes the same file on every
  // machine. The sizes of the program and of a token are about those that `chaski plan` shows.
  constexpr int kThreads = 16;
  constexpr uint64_t kProgram = 14 << 20, kOfToken = 140;
  expect_runnable(source);
  ShapedModel shaped(source);
  const Placement where = settle(*shaped, o, source.path);
  const Footprint need(*shaped, int((*shaped).n_layers), o.kv, kThreads);
  const uint64_t states = need.states(where.context), room = memory - memory / 16,
                 others = states + need.activations(where.context) + kProgram +
                          kOfToken * uint64_t((*shaped).vocab);
  if (others >= room)
    fail(Exit::memory,
         "{}: a context of {} needs {:.1f} MB in addition to the weights ({:.1f} MB for keys and "
         "values), expected less than {:.1f} MB, which is what can be relied on of {:.1f} MB",
         source.path, where.context, double(others) / 1e6, double(states) / 1e6, double(room) / 1e6,
         double(memory) / 1e6);
  return room - others;
}

namespace {

void lacks_to_read_ahead(Forecast& f, uint64_t bytes) {
  f.no_speed = fmt::format(
      "because the system reads the mapped file as it is used; with {} more memory, chaski would "
      "read it in advance",
      size_text(bytes));
}

void add_experts(Forecast& f, const OpenModel& opened, const Model& model,
                 const ForecastOptions& o) {
  const int positions = o.engine.context > 0 ? f.context : std::min(f.context, kDefaultPositions);
  const auto room = expert_room(model, f.cpu_layers, positions, o.engine, f.threads);
  if (!room) return;
  expect_expert_memory(o.engine, room->weights, f.threads);
  const std::vector<int64_t> slots = slots_within(room->weights, room->bytes, f.threads);
  if (slots.empty()) {
    lacks_to_read_ahead(f, room->over + least_bytes(room->weights, f.threads) - room->bytes);
    return;
  }
  Forecast::Experts e{room->all, room->bytes};
  const ExpertUses uses = kept_expert_uses(opened.mapped->path, opened.mapped->state);
  e.uses_known = !uses.empty();
  e.found = expected_hits(room->weights, slots, double(room->a_token) / double(room->all), uses);
  e.read_a_token = uint64_t(double(room->a_token) * (1 - e.found));
  o.note("the speed of the disk");
  e.file_bandwidth = measure_file_bandwidth(*opened.mapped->mapping);
  f.experts = e;
}

void add_streamed(Forecast& f, const OpenModel& opened, const Model& model,
                  const ForecastOptions& o) {
  const int positions = o.engine.context > 0 ? f.context : std::min(f.context, kDefaultPositions);
  const auto room = stream_room(model, positions, o.engine, f.threads);
  if (!room) return;
  if (room->streamed.empty()) {
    lacks_to_read_ahead(f, room->over + room->least - std::min(room->least, room->bytes));
    return;
  }
  o.note("the speed of the disk");
  f.streamed = {room->a_pass, ring_bytes(room->streamed),
                measure_file_bandwidth(*opened.mapped->mapping)};
}

// Predicts the speed from that with all weights in memory, and returns the latter. Weights are read
// while others are multiplied. A pass of a prompt reads each expert once, a token those that are
// not found.
std::optional<SpeedForecast> predict_speed(Forecast& f, const ForecastOptions& o,
                                           const ModelSource& source, const Model& model) {
  try {
    f.speed = forecast_speed(source, model, o.engine, o.measure_again, o.note);
  } catch (const Error& e) {
    if (e.code != Exit::memory) throw;
    f.no_speed = "because a layer and the embeddings, which would be timed, do not fit into memory";
    return std::nullopt;
  }
  const SpeedForecast in_memory = *f.speed;
  const auto read = [&](uint64_t a_prompt_pass, uint64_t a_token, double file_bandwidth) {
    if (file_bandwidth <= 0) return;
    f.speed->prompt = 1 / std::max(1 / f.speed->prompt,
                                   double(a_prompt_pass) / file_bandwidth / double(kCpuBatch));
    f.speed->decode = 1 / std::max(1 / f.speed->decode, double(a_token) / file_bandwidth);
  };
  if (f.experts)
    read(f.experts->all - std::min(f.experts->all, f.experts->bytes), f.experts->read_a_token,
         f.experts->file_bandwidth);
  if (f.streamed) read(f.streamed->a_pass, f.streamed->a_pass, f.streamed->file_bandwidth);
  return in_memory;
}

// The most machines that are predicted beyond those asked for.
constexpr int kMostRanks = 64;

// Each of several machines has its part in memory.
void add_fleet(Forecast& f, const Model& model, const ForecastOptions& o,
               const std::optional<SpeedForecast>& in_memory) {
  for (int n = 1; n <= (f.speed ? std::max(o.ranks, kMostRanks) : o.ranks); ++n) {
    f.fleet.push_back(
        forecast_fleet(model, f.kv, f.context, n, o.link, n > 1 ? in_memory : f.speed));
    if (n > o.ranks && f.fleet[size_t(n) - 1].speed->decode <= f.fleet[size_t(n) - 2].speed->decode)
      break;
  }
}

}  // namespace

Forecast forecast(const ForecastOptions& o) {
  check_options(o.engine);
  const OpenModel opened = o.shape ? OpenModel{random_source(*o.shape), nullptr}
                                   : open_as_kept(o.engine.model, o.engine.tokenizer,
                                                  kept_of(o.engine), o.engine.notice);
  const ModelSource& source = opened.source;
  // Kept alive, because its memory is part of resident_memory() below.
  const auto tokenizer = o.shape ? nullptr : expect_runnable(source);
  Forecast f;
  f.have = available_memory(), f.pages = available_pages();  // as Engine::open() finds them
  ShapedModel shaped(source);
  const Model& model = *shaped;
  const Placement where = settle(*shaped, o.engine, source.path);
  f.path = source.path, f.kind = source.kind;
  f.has_tokenizer = o.shape || tokenizer;
  f.mapped = opened.mapped && !o.engine.copy;
  f.context = where.context, f.own_context = int(model.context);
  f.threads = thread_count(o.engine), f.kv = o.engine.kv;
  if (!o.shape) f.kv_loss = kept_kv_loss(f.path, f.kv);
  f.layers = int(model.n_layers), f.cpu_layers = where.cpu_layers();
  if (const DeviceNeeds* needs = where.device()) add_device(f, *needs);

  const Footprint need(model, f.cpu_layers, f.kv, f.threads);
  f.program = resident_memory();
  f.weights = need.weights(), f.states = need.states(f.context);
  f.recurrent = state_bytes(states_of(model, all_layers(model), f.kv)).recurrent;
  const uint64_t taken = f.mapped ? 0 : f.weights, free = f.have.value_or(UINT64_MAX),
                 have = promised(free);
  const auto room = [&](uint64_t bytes) { return bytes - std::min(bytes, taken); };
  f.fits = taken <= have && need.longest_context(room(have), f.context) == f.context;
  f.longest_context = std::max(
      f.fits ? f.context : 0,
      need.longest_context(room(prudent(free, f.threads)), std::max(f.context, f.own_context)));
  f.activations = need.activations(f.fits ? f.context : std::max(f.longest_context, 1));
  f.starts = f.fits || (o.engine.context == 0 && taken <= have &&
                        need.longest_context(room(have), std::min(f.context, kPage)) > 0);
  f.weights_stay = !f.mapped || f.weights + f.activations + (f.fits ? f.states : 0) <=
                                    promised(f.pages.value_or(UINT64_MAX));
  if (!f.fits) {
    f.ways = remedies(model, f.cpu_layers, o.engine, f.threads, f.context, free, f.mapped);
    f.map = advice_to_map(source, f.mapped, f.cpu_layers);
  }

  f.bytes_a_token = weight_bytes_a_token(model);
  if (uses_expert_memory(model, f.mapped && opened.mapped->mapping, f.cpu_layers > 0, f.path,
                         o.engine))
    add_experts(f, opened, model, o);
  if (may_stream(model, f.mapped && opened.mapped->mapping, f.cpu_layers == f.layers, f.path,
                 o.engine))
    add_streamed(f, opened, model, o);
  const bool in_memory = f.weights <= have && f.weights_stay;
  std::optional<SpeedForecast> speed_in_memory;
  if (f.cpu_layers == f.layers && (in_memory || f.experts || f.streamed)) {
    speed_in_memory = predict_speed(f, o, source, model);
    f.bandwidth = bandwidth_of(f.threads, o.measure_again, o);
  }
  if (o.ranks > 1) add_fleet(f, model, o, speed_in_memory);
  return f;
}

}  // namespace chaski
