#include "engine/bench.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "engine/bandwidth.h"
#include "engine/bench_sgemm.h"
#include "engine/engine_impl.h"
#include "engine/peak.h"
#include "engine/session.h"

namespace chaski {

namespace {

using Clock = std::chrono::steady_clock;

// Tokens from all over the vocabulary, the same in every run.
std::vector<TokenId> made_up_tokens(int count, int vocab) {
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < uint64_t(count); ++i) tokens.push_back(TokenId((i * 2654435761u + 12345u) % uint64_t(vocab)));
  return tokens;
}

// The session's first `depth` tokens, whatever it held.
void go_to(Session& session, int depth) {
  session.rewind(std::min(depth, session.position()));
  const std::vector<TokenId> tokens = made_up_tokens(depth, session.engine().vocab_size());
  if (session.position() < depth) session.extend(std::span(tokens).subspan(size_t(session.position())));
}

void evaluate(Session& session, const BenchCase& c, std::span<const TokenId> tokens) {
  if (c.kind == BenchCase::Kind::decode)
    for (const TokenId token : tokens) session.decode(token);
  else
    session.extend(tokens, c.kind == BenchCase::Kind::width ? int(tokens.size()) : 1);
}

// The profiler's sums, for one unit.
void account(BenchCase& c, const EngineImpl::Profile& profile, int units) {
  c.passes = double(profile.passes) / units, c.steps = double(profile.steps) / units, c.barriers = double(profile.barriers) / units;
  c.bytes = c.operations = c.integer = 0;
  c.ops.clear();
  for (const auto& [op, p] : profile.ops) {
    c.bytes += p.cost.bytes / units, c.operations += p.cost.flops / units, c.integer += p.cost.integer / units;
    c.ops.push_back({op, double(p.calls) / units, p.seconds / units, p.cost.bytes / units, p.cost.flops / units});
  }
  std::sort(c.ops.begin(), c.ops.end(), [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
}

// Every round starts from the same context. The round that does not count tells what a round reads and computes.
void measure(Session& session, BenchCase& c, const BenchOptions& o) {
  EngineImpl& engine = session.engine().impl();
  const std::vector<TokenId> tokens = made_up_tokens(c.tokens, session.engine().vocab_size());
  const int units = c.kind == BenchCase::Kind::decode ? c.tokens : 1;
  const auto round = [&] {
    go_to(session, c.depth);
    const auto start = Clock::now();
    evaluate(session, c, tokens);
    return std::chrono::duration<double>(Clock::now() - start).count() / units;
  };
  const auto profiled_round = [&] {
    go_to(session, c.depth);
    EngineImpl::Profile profile;
    engine.profile = &profile;
    evaluate(session, c, tokens);
    engine.profile = nullptr;
    account(c, profile, units);
  };
  profiled_round();
  std::vector<double> seconds;
  for (int i = 0; i < o.repetitions; ++i) seconds.push_back(round());
  c.seconds = spread_of(seconds);
  if (o.profile) profiled_round();
  else c.ops.clear();
}

std::vector<BenchCase> cases_of(const Engine& engine, const BenchOptions& o) {
  std::vector<BenchCase> cases;
  const auto add = [&](BenchCase::Kind kind, int tokens, int depth) {
    if (tokens == 0) return;
    if (depth + tokens > engine.context_length())
      fail(Exit::prompt_too_long, "{} tokens after {} do not fit into a context of {}", tokens, depth, engine.context_length());
    BenchCase c;
    c.kind = kind, c.tokens = tokens, c.depth = depth;
    c.format = info(engine.weight_format()).name, c.kv = engine.kv_type();
    cases.push_back(c);
  };
  for (const int tokens : o.prompts) add(BenchCase::Kind::prompt, tokens, 0);
  for (const int depth : o.depths) {
    add(BenchCase::Kind::decode, o.decode, depth);
    for (const int tokens : o.widths) add(BenchCase::Kind::width, tokens, depth);
  }
  return cases;
}

Limits measure_limits(Engine& engine, bool sgemm) {
  std::set<Format> formats = {Format::f32, Format::q8};
  if (const Format weights = engine.weight_format(); info(weights).block > 1) formats.insert(weights);
  if (sgemm)
    for (const Format f : kSgemmFormats)
      if (info(f).block > 1) formats.insert(f);
  Limits limits;
  limits.read = measure_read_bandwidth({.threads = engine.threads()});
  for (const Format f : formats)
    limits.arithmetic[std::string(info(f).name)] = measure_peak(*engine.impl().backend, f, engine.threads());
  return limits;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[n / 2] + values[(n - 1) / 2]) / 2, values.front(), values.back()};
}

const char* BenchCase::name() const {
  constexpr const char* kNames[] = {"prompt", "decode", "width", "sgemm", "matmul"};
  return kNames[int(kind)];
}

double Limits::integer(const std::string& format) const {
  const auto at = arithmetic.find(format);
  return at != arithmetic.end() && at->first != "f32" ? at->second : arithmetic.at("q8");
}

double BenchCase::arithmetic_seconds(const Limits& l) const {
  return l.f32() > 0 ? integer / l.integer(format) + (operations - integer) / l.f32() : 0;
}

Limits BenchResult::limits() const {
  Limits best = before;
  best.read = std::max(before.read, after.read);
  for (auto& [format, rate] : best.arithmetic) rate = std::max(rate, after.arithmetic.at(format));
  return best;
}

BenchResult bench(std::span<const std::shared_ptr<Engine>> engines, const BenchOptions& o, const BenchNote& note) {
  BenchResult result;
  std::vector<std::vector<BenchCase>> cases;
  for (const auto& engine : engines) cases.push_back(cases_of(*engine, o));
  std::optional<OpenBlas> blas;  // missed now, not after minutes
  if (o.sgemm) blas.emplace(engines[0]->threads(), engines[0]->isa());
  note("the machine's limits");
  result.before = measure_limits(*engines[0], o.sgemm);
  for (size_t i = 0; i < engines.size(); ++i) {
    const auto session = engines[i]->session();
    for (BenchCase& c : cases[i]) {
      note(fmt::format("{} {}, {} keys and values, depth {}", c.name(), c.tokens, c.kv, c.depth));
      measure(*session, c, o);
      result.cases.push_back(std::move(c));
    }
  }
  if (o.sgemm) {
    note("sgemm and matmul");
    const int most = *std::max_element(o.prompts.begin(), o.prompts.end());
    for (const BenchCase& c : bench_sgemm(*engines[0], *blas, most > 0 ? most : 512, o.repetitions)) result.cases.push_back(c);
    result.sgemm_library = blas->config();
  }
  note("the machine's limits");
  result.after = measure_limits(*engines[0], o.sgemm);
  return result;
}

}  // namespace chaski
