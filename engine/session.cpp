#include "engine/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/engine_impl.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

struct Session::Impl {
  std::shared_ptr<Engine> engine;
  std::vector<TokenId> tokens;
  std::vector<int32_t> table;  // a page per 16 positions of the whole context: its address never changes
  int pages = 0;               // of them in use
  std::vector<float> logits;   // of the last extend()

  EngineImpl& e() { return engine->impl(); }
  // Throws Error(memory) rather than waiting for the system to end the program. Small needs are not worth the question.
  void expect_memory(int end) {
    const uint64_t need = uint64_t(std::max(0, (end + kPage - 1) / kPage - pages)) * e().batch.kv.layout.page_bytes();
    if (need < (uint64_t(64) << 20)) return;
    if (const auto have = available_memory(); have && need > *have)
      fail(Exit::memory, "keys and values of {} more positions need {:.3g} GB of memory, {:.3g} GB are available", end - int(tokens.size()),
           double(need) / 1e9, double(*have) / 1e9);
  }
  // Pages for positions up to `end`, all of them this session's own from `from` on.
  void prepare(int from, int end) {
    expect_memory(end);
    for (int page = from / kPage; page < pages; ++page) table[size_t(page)] = e().pool->own(table[size_t(page)]);
    for (const int need = (end + kPage - 1) / kPage; pages < need; ++pages) table[size_t(pages)] = e().pool->take();
  }
  void keep(int positions) {
    for (const int need = (positions + kPage - 1) / kPage; pages > need;) e().pool->release(table[size_t(--pages)]);
  }
};

namespace {

void expect_finite(const float* logits, int64_t n, TokenId token, int position) {
  float sum = 0;  // stays finite unless an entry is not: x * 0 is 0 or NaN
  for (int64_t i = 0; i < n; ++i) sum += logits[i] * 0.0f;
  if (sum != 0) fail(Exit::non_finite, "the logits after token {} at position {} are not finite: the model or its file is damaged", token, position);
}

void expect_room(const Session& s, size_t n) {
  if (int(n) > s.room())
    fail(Exit::prompt_too_long, "{} tokens after {} do not fit into a context of {}", n, s.position(), s.position() + s.room());
}

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() { impl_->keep(0); }

std::unique_ptr<Session> Engine::session() {
  auto impl = std::make_unique<Session::Impl>();
  impl->engine = shared_from_this();
  impl->table.assign(size_t(impl_->context + kPage - 1) / kPage, 0);
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const std::vector<TokenId>& Session::tokens() const { return impl_->tokens; }
int Session::room() const { return impl_->e().context - position(); }
Engine& Session::engine() const { return *impl_->engine; }

std::span<const float> Session::extend(std::span<const TokenId> tokens, int wanted) {
  const Extension part{this, tokens, wanted};
  return extend_all({&part, 1});
}

namespace {

// One pass: tokens of several sessions, each with the outputs wanted in it.
struct Pass {
  Batch& batch;
  void clear() {
    batch.tokens.clear(), batch.positions.clear(), batch.tables.clear(), batch.outputs.clear();
  }
  void add(TokenId token, int position, const int32_t* table, bool wanted) {
    if (wanted) batch.outputs.push_back(int32_t(batch.tokens.size()));
    batch.tokens.push_back(token), batch.positions.push_back(position), batch.tables.push_back(table);
  }
};

}  // namespace

std::span<const float> Session::extend_all(std::span<const Extension> parts) {
  check(parts);
  try {
    for (const Extension& p : parts) p.session->impl_->prepare(p.session->position(), p.session->position() + int(p.tokens.size()));
    const std::span<const float> logits = run(parts);
    for (const Extension& p : parts) p.session->impl_->tokens.insert(p.session->impl_->tokens.end(), p.tokens.begin(), p.tokens.end());
    return logits;
  } catch (...) {  // nothing is changed: pages taken for tokens that did not come are given back
    for (const Extension& p : parts) p.session->impl_->keep(p.session->position());
    throw;
  }
}

void Session::check(std::span<const Extension> parts) {
  CHECK(!parts.empty() && parts[0].session, "there is something to extend");
  const EngineImpl& e = parts[0].session->impl_->e();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Extension& p = parts[i];
    CHECK(&p.session->impl_->e() == &e, "sessions of one engine");
    CHECK(p.wanted >= 0 && size_t(p.wanted) <= p.tokens.size(), "logits of tokens that are there");
    for (size_t k = 0; k < i; ++k) CHECK(parts[k].session != p.session, "a session comes once");
    for (TokenId t : p.tokens) CHECK(t >= 0 && t < e.model->hyper.vocab, "token ids come from this model's tokenizer");
    expect_room(*p.session, p.tokens.size());
  }
}

// All tokens in passes of at most kMaxBatch; the logits of the wanted ones, in order.
std::span<const float> Session::run(std::span<const Extension> parts) {
  Impl& lead = *parts[0].session->impl_;
  EngineImpl& e = lead.e();
  const size_t vocab = size_t(e.model->hyper.vocab);
  size_t total = 0, rows = 0;
  for (const Extension& p : parts) total += p.tokens.size(), rows += size_t(p.wanted);
  lead.logits.resize(rows * vocab);
  size_t row = 0, part = 0, at = 0;
  for (size_t done = 0; done < total;) {
    Pass pass{e.batch};
    pass.clear();
    while (part < parts.size() && e.batch.size() < kMaxBatch) {
      const Extension& p = parts[part];
      if (at == p.tokens.size()) {
        ++part, at = 0;
        continue;
      }
      pass.add(p.tokens[at], p.session->position() + int(at), p.session->impl_->table.data(), at + size_t(p.wanted) >= p.tokens.size());
      ++at, ++done;
    }
    const float* logits = e.forward();
    for (size_t i = 0; i < e.batch.outputs.size(); ++i, ++row) {
      const size_t token = size_t(e.batch.outputs[i]);
      expect_finite(logits + i * vocab, int64_t(vocab), e.batch.tokens[token], e.batch.positions[token]);
      std::memcpy(lead.logits.data() + row * vocab, logits + i * vocab, vocab * sizeof(float));
    }
  }
  return lead.logits;
}

size_t Session::common_prefix(std::span<const TokenId> tokens) const {
  const auto& held = impl_->tokens;
  return size_t(std::mismatch(held.begin(), held.end(), tokens.begin(), tokens.end()).first - held.begin());
}

int Session::sync(std::span<const TokenId> tokens, std::span<const float>* logits) {
  CHECK(!tokens.empty(), "a model needs a token to start from");
  const size_t same = std::min(common_prefix(tokens), tokens.size() - 1);
  if (tokens.size() > size_t(impl_->e().context))
    fail(Exit::prompt_too_long, "the prompt has {} tokens, the context {}", tokens.size(), impl_->e().context);
  rewind(int(same));
  *logits = extend(tokens.subspan(same));
  return int(same);
}

void Session::rewind(int position) {
  CHECK(position >= 0 && position <= this->position(), "rewinding goes back");
  impl_->tokens.resize(size_t(position));
  impl_->keep(position);
}

std::unique_ptr<Session> Session::fork() {
  auto copy = std::make_unique<Impl>();
  copy->engine = impl_->engine, copy->tokens = impl_->tokens, copy->table = impl_->table, copy->pages = impl_->pages;
  for (int i = 0; i < copy->pages; ++i) copy->e().pool->share(copy->table[size_t(i)]);
  return std::unique_ptr<Session>(new Session(std::move(copy)));
}

}  // namespace chaski
