#include "engine/measure/bench.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "engine/machine/bandwidth.h"
#include "engine/machine/peak.h"
#include "engine/measure/sgemm.h"
#include "engine/pages/kv_cache.h"
#include "engine/passes/pipeline.h"
#include "engine/session/pass.h"

namespace chaski {

namespace {

using Clock = std::chrono::steady_clock;

// Tokens spread over the vocabulary, the same in every run.
std::vector<TokenId> made_up_tokens(int count, int vocab) {
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < uint64_t(count); ++i)
    tokens.push_back(TokenId((i * 2654435761u + 12345u) % uint64_t(vocab)));
  return tokens;
}

// Runs rounds of a case on an engine. Keeps as many sessions as the cases need at once.
class Rounds {
 public:
  // Turns prefix sharing off, so that each sequence has its own pages although the texts are equal.
  explicit Rounds(Engine& engine) : engine_(engine), sampler_(greedy()) {
    engine.kv_cache().prefixes.reset();
  }

  // Seconds of one unit.
  double seconds(const BenchCase& c) {
    prepare(c);
    const auto start = Clock::now();
    const int units = evaluate(c);
    return std::chrono::duration<double>(Clock::now() - start).count() / units;
  }

  // Runs one more round with the profiler and stores its sums.
  void account(BenchCase& c) {
    prepare(c);
    Profile profile;
    engine_.pipeline().profile = &profile;
    const double units = evaluate(c);
    engine_.pipeline().profile = nullptr;
    c.passes = profile.passes / units, c.steps = double(profile.n_steps) / units,
    c.kernels = double(profile.kernels) / units;
    c.cpu = c.device = {};
    c.profile.clear();
    for (const auto& [name, p] : profile.steps) {
      c.profile.push_back({name, p.calls / units, p.seconds / units, {}});
      c.profile.back().work.add(p.cost, units);
      (name.on_device ? c.device : c.cpu).add(p.cost, units);
    }
    std::sort(c.profile.begin(), c.profile.end(),
              [](const StepTime& a, const StepTime& b) { return a.seconds > b.seconds; });
  }

 private:
  static SamplerOptions greedy() {
    SamplerOptions o;
    o.temperature = 0;
    return o;
  }

  // Every round starts from the same context.
  void prepare(const BenchCase& c) {
    while (sessions_.size() < sessions_of(c)) sessions_.push_back(engine_.session());
    for (size_t i = 0; i < sessions_.size(); ++i)
      if (i >= sessions_of(c)) sessions_[i]->rewind(0);  // frees its pages for the others
    for (size_t i = 0; i < sessions_of(c); ++i) go_to(*sessions_[i], c.depth);
  }
  static size_t sessions_of(const BenchCase& c) {
    return c.kind == BenchCase::Kind::sequences ? size_t(c.tokens) : 1;
  }

  // Puts the session at `depth` tokens, whatever it held.
  void go_to(Session& session, int depth) {
    session.rewind(std::min(depth, session.position()));
    const std::vector<TokenId> tokens = made_up_tokens(depth, engine_.vocab_size());
    if (session.position() < depth)
      session.extend(std::span(tokens).subspan(size_t(session.position())));
  }

  // Runs a round. Returns its number of units.
  int evaluate(const BenchCase& c) {
    // Sequences with the same tokens would choose the same experts.
    const std::vector<TokenId> tokens =
        made_up_tokens(c.tokens_evaluated() * int(sessions_of(c)), engine_.vocab_size());
    if (c.kind == BenchCase::Kind::prompt || c.kind == BenchCase::Kind::width) {
      pass({{.session = sessions_[0].get(),
             .tokens = tokens,
             .wanted = c.kind == BenchCase::Kind::width ? int(tokens.size()) : 1,
             .sampler = &sampler_}});
      return 1;
    }
    const size_t sessions = sessions_of(c), units = tokens.size() / sessions;
    for (size_t unit = 0; unit < units; ++unit) {
      std::vector<Extension> parts;
      for (size_t i = 0; i < sessions; ++i)
        parts.push_back({.session = sessions_[i].get(),
                         .tokens = {&tokens[unit * sessions + i], 1},
                         .sampler = &sampler_});
      pass(parts);
    }
    return int(units);
  }

  void pass(const std::vector<Extension>& parts) {
    if (engine_.pipeline().can_draw())
      Pass(parts).draw(draws_);
    else
      Pass(parts).run();
  }

  Engine& engine_;
  Sampler sampler_;
  std::vector<Draws> draws_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// Long enough for two passes over the buffer at 25 GB/s.
constexpr double kReadSeconds = 0.04;

// The warm-up round is profiled: it shows what a round reads and computes. Memory is measured
// between the rounds, because its speed changes within seconds where a host moves the cores of a
// virtual machine (docs/performance.md).
void measure(Rounds& rounds, BenchCase& c, const BenchOptions& o, BandwidthMeter* memory) {
  rounds.account(c);
  std::vector<double> seconds, read;
  for (int i = 0; i < o.repetitions; ++i) {
    if (memory) read.push_back(memory->measure());
    seconds.push_back(rounds.seconds(c));
  }
  if (memory) read.push_back(memory->measure());
  c.seconds = spread_of(seconds), c.memory = spread_of(read).median;
  if (o.profile)
    rounds.account(c);
  else
    c.profile.clear();
}

std::vector<BenchCase> cases_of(const Engine& engine, const BenchOptions& o) {
  std::vector<BenchCase> cases;
  const auto add = [&](BenchCase::Kind kind, int tokens, int depth) {
    BenchCase c;
    c.kind = kind, c.tokens = tokens, c.depth = depth, c.decoded = o.decode;
    const int evaluated = c.tokens_evaluated();
    if (evaluated == 0) return;
    if (depth + evaluated > engine.context_length())
      fail(Exit::prompt_too_long,
           "a {} case of {} tokens at depth {} does not fit into the context of {}", c.name(),
           evaluated, depth, engine.context_length());
    c.format = info(engine.weight_format()).name, c.kv = engine.kv_type();
    cases.push_back(c);
  };
  for (const int tokens : o.prompts) add(BenchCase::Kind::prompt, tokens, 0);
  for (const int depth : o.depths) {
    add(BenchCase::Kind::decode, o.decode, depth);
    for (const int tokens : o.widths) add(BenchCase::Kind::width, tokens, depth);
    for (const int sequences : o.sequences) add(BenchCase::Kind::sequences, sequences, depth);
  }
  return cases;
}

Limits cpu_limits(Engine& engine, bool sgemm) {
  std::set<Format> formats = {Format::f32, Format::q8};
  if (const Format weights = engine.weight_format(); reads_acts(weights)) formats.insert(weights);
  if (sgemm)
    for (const Format f : kSgemmFormats)
      if (reads_acts(f)) formats.insert(f);
  Limits limits;
  limits.memory = measure_read_bandwidth({.threads = engine.threads()});
  for (const Format f : formats) {
    const FormatKernels& kernels = cpu_backend().formats[int(f)];
    const std::string name(info(f).name);
    limits.arithmetic[name] = measure_peak(kernels.peak, engine.threads());
    if (kernels.tile_peak)
      limits.arithmetic[name + kInTiles] = measure_peak(kernels.tile_peak, engine.threads());
  }
  return limits;
}

Limits device_limits(CudaBackend& device) {
  const CudaLimits l = device.measure_limits();
  return {l.copy, {{"q8", l.int8}, {"f16", l.f16}, {"bf16", l.f16}, {"f32", l.f32}}};
}

MachineLimits measure_limits(Engine& engine, bool sgemm) {
  MachineLimits limits;
  const Pipeline& pipeline = engine.pipeline();
  if (pipeline.cpu()) limits.cpu = cpu_limits(engine, sgemm);
  if (CudaStage* cuda = pipeline.cuda()) limits.device = device_limits(cuda->backend());
  return limits;
}

Limits better(Limits a, const Limits& b) {
  a.memory = std::max(a.memory, b.memory);
  for (auto& [format, rate] : a.arithmetic) rate = std::max(rate, b.arithmetic.at(format));
  return a;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[n / 2] + values[(n - 1) / 2]) / 2, values.front(), values.back()};
}

const char* BenchCase::name() const {
  constexpr const char* kNames[] = {"prompt", "decode", "width", "sequences", "sgemm", "matmul"};
  return kNames[int(kind)];
}

double Limits::integer(const std::string& format, int tokens) const {
  const bool known = arithmetic.contains(format) && reads_acts(*format_named(format));
  const std::string name = known ? format : "q8";
  const auto tiles = arithmetic.find(name + kInTiles);
  return tokens >= kGroup && tiles != arithmetic.end() ? tiles->second : arithmetic.at(name);
}

double Limits::floating(const std::string& format) const {
  const auto at = arithmetic.find(format);
  return at != arithmetic.end() && !reads_acts(*format_named(format)) ? at->second
                                                                      : arithmetic.at("f32");
}

void Work::add(const Cost& cost, double units) {
  bytes += cost.bytes / units, operations += cost.flops / units, integer += cost.integer / units;
}

double Work::arithmetic_seconds(const Limits& l, const std::string& format, int tokens) const {
  if (!l.measured()) return 0;
  return integer / l.integer(format, tokens) + (operations - integer) / l.floating(format);
}

MachineLimits BenchResult::limits() const {
  return {better(before.cpu, after.cpu), better(before.device, after.device)};
}

MachineLimits BenchResult::limits(const BenchCase& c) const {
  MachineLimits all = limits();
  if (c.memory > 0) all.cpu.memory = c.memory;
  return all;
}

BenchResult bench(std::span<const std::shared_ptr<Engine>> engines, const BenchOptions& o,
                  const BenchNote& note) {
  BenchResult result;
  std::vector<std::vector<BenchCase>> cases;
  for (const auto& engine : engines) cases.push_back(cases_of(*engine, o));
  std::optional<OpenBlas> blas;  // opened first: if it is missing, the command fails at once
  if (o.sgemm) blas.emplace(engines[0]->threads(), engines[0]->isa());
  if (o.limits) {
    note("the machine's limits");
    result.before = measure_limits(*engines[0], o.sgemm);
  }
  // The meter keeps its buffer. A model that is larger than memory will fill the memory that is
  // still free now, and then the kernel would kill the program.
  const bool fits = std::all_of(engines.begin(), engines.end(), [](const auto& engine) {
    return !engine->expert_facts() && engine->streamed_bytes() == 0;
  });
  std::optional<BandwidthMeter> memory;
  if (result.before.cpu.measured() && fits)
    memory.emplace(BandwidthOptions{.threads = engines[0]->threads(), .seconds = kReadSeconds});
  for (size_t i = 0; i < engines.size(); ++i) {
    Rounds rounds(*engines[i]);
    for (BenchCase& c : cases[i]) {
      note(fmt::format("{} {}, {} keys and values, depth {}", c.name(), c.tokens, c.kv, c.depth));
      measure(rounds, c, o, memory ? &*memory : nullptr);
      result.cases.push_back(std::move(c));
    }
  }
  if (o.sgemm) {
    note("sgemm and matmul");
    const int most = *std::max_element(o.prompts.begin(), o.prompts.end());
    for (const BenchCase& c : bench_sgemm(*engines[0], *blas, most > 0 ? most : 512, o.repetitions))
      result.cases.push_back(c);
    result.sgemm_library = blas->config();
  }
  if (!o.limits) return result;
  memory.reset();
  note("the machine's limits");
  result.after = measure_limits(*engines[0], o.sgemm);
  const MachineLimits limits = result.limits();
  if (!limits.device.measured() || !limits.cpu.measured())
    keep_bandwidth(engines[0]->memory(), std::max(limits.device.memory, limits.cpu.memory));
  return result;
}

}  // namespace chaski
