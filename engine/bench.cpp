#include "engine/bench.h"

#include <algorithm>
#include <chrono>

#include "engine/bandwidth.h"
#include "engine/engine_impl.h"
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

template <class Work>
double rate_of(int tokens, const Work& work) {
  const auto start = Clock::now();
  work();
  return tokens / std::chrono::duration<double>(Clock::now() - start).count();
}

// Tokens per second of one prompt.
double prompt_once(Engine& engine, int count) {
  const auto session = engine.session();
  const std::vector<TokenId> tokens = made_up_tokens(count, engine.vocab_size());
  return rate_of(count, [&] { session->extend(tokens); });
}

// The same stretch of the context each time, so that repetitions compare.
double decode_once(Session& session, int depth, const std::vector<TokenId>& tokens) {
  session.rewind(depth);
  return rate_of(int(tokens.size()), [&] {
    for (const TokenId token : tokens) session.decode(token);
  });
}

template <class Once>
Spread repeated(int repetitions, const Once& once) {
  once();
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) rates.push_back(once());
  return spread_of(rates);
}

// Seconds of a pass of n tokens behind the same context.
WidthTime width_time(Session& session, int depth, int n, int repetitions) {
  const std::vector<TokenId> tokens = made_up_tokens(n, session.engine().vocab_size());
  const Spread rate = repeated(repetitions, [&] {
    session.rewind(depth);
    return rate_of(1, [&] { session.extend(tokens, n); });
  });
  return {n, {1 / rate.median, 1 / rate.most, 1 / rate.least}};
}

std::vector<OpTime> profile_of(Engine& engine, Session& session, int steps) {
  std::map<std::string, EngineImpl::OpProfile> sums;
  engine.impl().profile = &sums;
  for (int i = 0; i < steps; ++i) session.decode(TokenId(i % engine.vocab_size()));
  engine.impl().profile = nullptr;
  std::vector<OpTime> out;
  for (const auto& [op, p] : sums) out.push_back({op, p.calls / steps, p.seconds / steps, p.cost.bytes / steps, p.cost.flops / steps});
  std::sort(out.begin(), out.end(), [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return out;
}

// A prompt's logits are wanted for its last token only: the head runs once.
double prompt_flops(const Engine& engine, int tokens) {
  const double head = 2.0 * engine.vocab_size() * double(engine.meta().integer("model.embedding_length"));
  return tokens * (engine.flops_per_token() - head) + head;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[n / 2] + values[(n - 1) / 2]) / 2, values.front(), values.back()};
}

BenchResult bench(Engine& engine, const BenchOptions& o, const BenchNote& note) {
  BenchResult result;
  note("measuring memory");
  result.bandwidth_before = measure_read_bandwidth({.threads = engine.threads()});
  if (o.prompt > 0) {
    note("prompt");
    result.prompt_rate = repeated(o.repetitions, [&] { return prompt_once(engine, o.prompt); });
    result.prompt_flops = result.prompt_rate.median * prompt_flops(engine, o.prompt) / o.prompt;
  }
  if (o.decode > 0) {
    note("decode");
    const auto session = engine.session();
    if (o.depth > 0) session->extend(made_up_tokens(o.depth, engine.vocab_size()));
    const std::vector<TokenId> tokens = made_up_tokens(o.decode, engine.vocab_size());
    result.decode_rate = repeated(o.repetitions, [&] { return decode_once(*session, o.depth, tokens); });
    result.decode_bytes = engine.weight_bytes() + uint64_t(o.depth + o.decode / 2) * engine.kv_bytes_per_token();
    result.read_rate = result.decode_rate.median * double(result.decode_bytes);
  }
  if (!o.widths.empty() || o.profile) {
    note("widths and profile");
    const auto session = engine.session();
    if (o.depth > 0) session->extend(made_up_tokens(o.depth, engine.vocab_size()));
    for (const int n : o.widths) result.widths.push_back(width_time(*session, o.depth, n, o.repetitions));
    session->rewind(o.depth);
    if (o.profile) result.profile = profile_of(engine, *session, std::min(o.repetitions * 4, session->room()));
  }
  note("measuring memory");
  result.bandwidth_after = measure_read_bandwidth({.threads = engine.threads()});
  return result;
}

}  // namespace chaski
