#include "engine/bench.h"

#include <algorithm>
#include <chrono>

#include "engine/bandwidth.h"
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
  note("measuring memory");
  result.bandwidth_after = measure_read_bandwidth({.threads = engine.threads()});
  return result;
}

}  // namespace chaski
