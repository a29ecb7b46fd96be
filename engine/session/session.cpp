#include "engine/session/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "engine/session/right_draws.h"
#include "engine/session/session_impl.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

void Session::Impl::expect_memory(int end) {
  constexpr uint64_t kWorthAsking = 16 << 20;
  uint64_t need = 0;
  for (const PageTable& t : tables) need += t.bytes_to(end);
  unasked += need;
  if (unasked < kWorthAsking) return;
  unasked = 0;
  // The addresses are this process's since the pool was made.
  const auto have = available_pages();
  if (!have || std::max(need, kWorthAsking) <= *have) return;
  // From now on what nobody holds any more makes room first.
  need = 0;
  for (const PageTable& t : tables) need += t.new_bytes_to(end);
  for (KvPool& pool : e().pools) pool.keep_within_now();
  if (const uint64_t wanted = std::max(need, kWorthAsking); need > 0 && wanted > *have)
    fail(Exit::memory,
         "keys and values of {} positions need {:.3g} GB of memory more, {:.3g} GB are available",
         end, double(wanted) / 1e9, double(*have) / 1e9);
}

void Session::Impl::remember(int position, bool guess) {
  const auto& pools = e().states.pools;
  if (position == 0 ||
      std::none_of(pools.begin(), pools.end(), [](const auto& p) { return p.recurrent; }))
    return;
  const auto position_of = [&](size_t n) { return n > 0 ? snapshots[n - 1].position : 0; };
  const size_t n = snapshots.size();
  if (!guess && position - position_of(n) < snapshot_cells) return;
  // Close to the one before it, the last was for a guess only.
  if (n > 0 && position_of(n) - position_of(n - 1) < snapshot_cells) snapshots.pop_back();
  snapshots.push_back({position, tables});
  for (PageTable& t : snapshots.back().tables) t.forget_before(position);
  if (snapshots.size() <= kSnapshots + 1) return;
  std::vector<Snapshot> every_other;
  for (size_t i = 1; i < snapshots.size(); i += 2) every_other.push_back(std::move(snapshots[i]));
  snapshots = std::move(every_other);
  snapshot_cells *= 2;
}

void Session::Impl::stand_at(PrefixIndex::Link* to) {
  if (to) PrefixIndex::hold(to);
  if (link) e().prefixes->let_go(link);
  link = to;
}

void Session::Impl::tell(int end) {
  if (!e().prefixes) return;
  for (int from = link ? link->end : 0; from + kPage <= end; from += kPage) {
    const int page = from / kPage;
    places_.clear();
    for (const PageTable& t : tables) places_.push_back(t.page(page));
    stand_at(
        e().prefixes->add(link, std::span(tokens).subspan(size_t(from), size_t(kPage)), places_));
    // Read by two at the same time, it is held once from now on.
    for (size_t i = 0; i < tables.size(); ++i)
      if (const int32_t known = link->places[i];
          known != kNoPage && places_[i] != kNoPage && known != places_[i])
        tables[i].share(page, known);
  }
}

void Session::Impl::share_known(std::span<const TokenId> text) {
  const auto held = int(tokens.size());
  if (!e().prefixes || int(text.size()) / kPage <= held / kPage) return;
  tell(held);
  std::vector<PrefixIndex::Link*> chain(size_t(held / kPage));
  for (PrefixIndex::Link* l = link; l; l = l->before) chain[size_t(l->end / kPage) - 1] = l;
  while ((chain.size() + 1) * kPage <= text.size()) {
    PrefixIndex::Link* const next = e().prefixes->find(
        chain.empty() ? nullptr : chain.back(), text.subspan(chain.size() * kPage, size_t(kPage)));
    if (!next) break;
    chain.push_back(next);
  }
  // For every page and pool, where the unbroken run of pages begins that ends with it.
  std::vector<std::vector<int>> runs(chain.size(), std::vector<int>(tables.size()));
  for (size_t page = 0; page < chain.size(); ++page)
    for (size_t i = 0; i < tables.size(); ++i)
      runs[page][i] = chain[page]->places[i] == kNoPage ? int(page) + 1
                      : page > 0                        ? runs[page - 1][i]
                                                        : 0;
  // As far as each pool has all that the next token sees.
  auto pages = int(chain.size());
  const auto whole = [&](int cells) {
    for (size_t i = 0; i < tables.size(); ++i)
      if (runs[size_t(pages) - 1][i] > tables[i].first_for(cells)) return false;
    return true;
  };
  while (pages > held / kPage && !whole(pages * kPage)) --pages;
  if (pages == held / kPage) return;
  const int cells = pages * kPage;
  std::vector<int32_t> shared;
  for (size_t i = 0; i < tables.size(); ++i) {
    // as many as it would have kept, had it read them
    const int first =
        std::max(runs[size_t(pages) - 1][i], tables[i].first_for(std::max(0, cells - kGoBack)));
    shared.clear();
    for (int page = first; page < pages; ++page) shared.push_back(chain[size_t(page)]->places[i]);
    tables[i].adopt(first, shared);
  }
  tokens.assign(text.begin(), text.begin() + cells);
  stand_at(chain[size_t(pages) - 1]);
}

bool Session::Impl::Branch::sees(int guess) const {
  return guess < 0 || has(guess) || std::count(before.begin(), before.end(), guess) > 0;
}

void Session::Impl::branch_out(const Extension& p) {
  branches.clear();
  const auto nodes = p.guesses;
  for (int i = 1; i < int(nodes.size()); ++i) {
    if (!Draft::begins_branch(nodes, i)) continue;
    for (const StateLayout::Pool& pool : e().states.pools)
      ENSURE(!pool.recurrent, "a draft has as many branches as Session::branches() says");
    Branch b{i, i + 1, {}, tables};
    while (b.end < int(nodes.size()) && !Draft::begins_branch(nodes, b.end)) ++b.end;
    for (int k = i; (k = nodes[size_t(k)].parent) >= 0;) b.before.push_back(k);
    const auto from = int(tokens.size());
    const int end = from + int(p.tokens.size() + b.before.size()) + b.end - b.first;
    for (PageTable& t : b.tables) t.prepare(from, end);
    branches.push_back(std::move(b));
  }
}

void Session::Impl::take_branch(int guess) {
  for (Branch& b : branches)
    if (b.has(guess)) tables = std::move(b.tables);
  branches.clear();
}

void Session::Impl::join(Batch& b, const Extension& p, size_t at, size_t n) {
  const size_t held = tokens.size(), given = p.tokens.size();
  remember(int(held + at), p.drawn() > 1);
  const size_t own =
      std::min(at + n, branches.empty() ? p.size() : given + size_t(branches[0].first));
  if (at < own)
    for (PageTable& t : tables) t.prepare(int(held + at), int(held + own));
  const auto store = [&](const Tables& to, int cell) {
    for (size_t i = 0; i < to.size(); ++i)
      if (!e().states.pools[i].recurrent)
        b.stores[i].push_back({int32_t(b.size()), to[i].data()[cell / kPage], cell % kPage});
  };
  int32_t sequence = b.sequences.empty() ? -1 : b.sequences.back();
  for (size_t i = at; i < at + n; ++i) {
    const int guess = int(i) - int(given);
    const auto of = std::find_if(branches.begin(), branches.end(),
                                 [&](const Branch& branch) { return branch.has(guess); });
    const Tables& to = of == branches.end() ? tables : of->tables;
    if (i == at || (of != branches.end() && of->first == guess)) {
      ++sequence;
      for (size_t k = 0; k < to.size(); ++k) b.tables[k].push_back(to[k].data());
    }
    const int cell = int(held) + (guess < 0 ? int(i) : int(given) + Draft::depth(p.guesses, guess));
    if (of == branches.end()) store(tables, cell);
    for (const Branch& branch : branches)
      if (branch.sees(guess)) store(branch.tables, cell);
    if (i + p.drawn() >= p.size()) b.outputs.push_back(int32_t(b.size()));
    const size_t cols = size_t(e().model->row_columns);
    const auto row = p.rows.begin() + ptrdiff_t(cols > 0 ? i * cols : 0);
    e().rows.insert(e().rows.end(), row, row + ptrdiff_t(cols));
    b.tokens.push_back(guess < 0 ? p.tokens[i] : p.guesses[size_t(guess)].token);
    b.positions.push_back(cell), b.cells.push_back(cell), b.sequences.push_back(sequence);
  }
}

namespace {

Error not_finite(Result what, TokenId token, int position) {
  return Error(Exit::non_finite,
               fmt::format("the {} after token {} at position {} are not finite: the model or its "
                           "file is damaged",
                           what == Result::hidden ? "hidden values" : "logits", token, position));
}

bool finite(std::span<const float> row) {
  float sum = 0;  // stays finite unless an entry is not: x * 0 is 0 or NaN
  for (const float x : row) sum += x * 0.0f;
  return sum == 0;
}

void clear(Batch& b) {
  b.tokens.clear(), b.positions.clear(), b.cells.clear(), b.sequences.clear(), b.outputs.clear();
  for (auto& sequences : b.tables) sequences.clear();
  for (auto& stores : b.stores) stores.clear();
}

size_t wanted_of(std::span<const Extension> extensions) {
  size_t rows = 0;
  for (const Extension& p : extensions) rows += p.drawn();
  return rows;
}

// The draws after all wanted tokens as a device makes them; none if there is one that it cannot
// make.
std::vector<CudaDraw> device_draws(std::span<const Extension> extensions, size_t vocab) {
  std::vector<CudaDraw> draws;
  for (const Extension& p : extensions) {
    if (p.wanted == 0) continue;
    const std::optional<PlainDraw>& plain = p.sampler->plain();
    if (!plain || p.scored) return {};
    CudaDraw draw;
    draw.temperature = plain->temperature, draw.top_p = plain->top_p, draw.min_p = plain->min_p,
    draw.top_k = plain->top_k;
    draw.seed = p.sampler->options().seed;
    draw.vocab = int(vocab);
    if (!cuda_can_draw(draw)) return {};
    draws.insert(draws.end(), p.drawn(), draw);
  }
  return draws;
}

// The flag by which all want the pass to be abandoned; null if they have several, or none.
const std::atomic<bool>* interrupt_of(std::span<const Extension> extensions) {
  const std::atomic<bool>* const first = extensions[0].interrupt;
  for (const Extension& p : extensions)
    if (p.interrupt != first) return nullptr;
  return first;
}

struct Abandoned {};  // thrown from a pass, so that its sessions are as before

void expect_room(const Session& s, size_t n) {
  if (int(n) > s.room())
    fail(Exit::prompt_too_long, "{} tokens after {} do not fit into a context of {}", n,
         s.position(), s.position() + s.room());
}

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

std::unique_ptr<Session> Engine::session() {
  auto impl = std::make_unique<Session::Impl>();
  impl->engine = shared_from_this();
  const auto& kinds = impl_->states.pools;
  const std::vector<int64_t> most = pages_of_session(kinds, impl_->context, impl_->max_batch);
  impl->tables.reserve(kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i)
    impl->tables.emplace_back(impl_->pools[i], kinds[i], impl_->context, most[i]);
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const std::vector<TokenId>& Session::tokens() const { return impl_->tokens; }
int Session::room() const { return impl_->e().context - position(); }
Engine& Session::engine() const { return *impl_->engine; }

std::span<const float> Session::extend(std::span<const TokenId> tokens, int wanted) {
  const Extension one{this, tokens, wanted};
  return extend_all({&one, 1});
}

template <class Evaluate>
void Session::append(std::span<const Extension> extensions, Evaluate evaluate) {
  try {
    for (const Extension& p : extensions) {
      Impl& s = *p.session->impl_;
      s.expect_memory(p.session->position() + int(p.size()));
      if (!p.tries) s.tell(p.session->position());
      s.branch_out(p);
    }
    evaluate();
    for (const Extension& p : extensions) {
      Impl& s = *p.session->impl_;
      s.tokens.insert(s.tokens.end(), p.tokens.begin(), p.tokens.end());
      // What may be taken back at once is not worth a place.
      if (!p.tries) s.tell(p.session->position() - std::max(p.wanted - 1, 0));
    }
  } catch (...) {  // pages taken for tokens that did not come are given back
    for (const Extension& p : extensions) {
      p.session->impl_->branches.clear();
      p.session->rewind(p.session->position());
    }
    throw;
  }
}

std::span<const float> Session::extend_all(std::span<const Extension> extensions) {
  return Impl::rows(extensions, Result::logits);
}

std::span<const float> Session::hidden(std::span<const TokenId> tokens, int wanted) {
  const Extension one{this, tokens, wanted};
  return Impl::rows({&one, 1}, Result::hidden);
}

std::optional<Session::Next> Session::extend(std::span<const TokenId> tokens,
                                             std::span<const float> rows,
                                             const std::atomic<bool>* stop) {
  Extension one{this, tokens};
  one.rows = rows;
  try {
    const std::span<const float> logits = Impl::rows({&one, 1}, Result::both, true, stop);
    return Next{logits, std::span(impl_->hidden_).last(size_t(impl_->e().beside))};
  } catch (const Abandoned&) {
    return std::nullopt;
  }
}

std::span<const float> Session::Impl::rows(std::span<const Extension> extensions, Result what,
                                           bool checked, const std::atomic<bool>* stop) {
  check(extensions);
  Impl& lead = *extensions[0].session->impl_;
  const size_t cols = size_t(lead.e().columns(what));
  append(extensions, [&] {
    lead.rows_.resize(wanted_of(extensions) * cols);
    each_row(extensions, what, checked, stop, [&](size_t row, const float* from) {
      std::memcpy(lead.rows_.data() + row * cols, from, cols * sizeof(float));
    });
  });
  return lead.rows_;
}

// In the order of the tokens, so that the passes they come in make no difference.
std::vector<float> Session::pooled(std::span<const TokenId> tokens) {
  ENSURE(!tokens.empty(), "nothing stands for no text");
  const bool mean = impl_->e().model->pooling == Model::Pooling::mean;
  const Extension one{this, tokens, mean ? int(tokens.size()) : 1};
  check({&one, 1});
  const size_t cols = size_t(impl_->e().columns(Result::hidden));
  std::vector<double> sums(cols);
  append({&one, 1}, [&] {
    Impl::each_row({&one, 1}, Result::hidden, true, nullptr, [&](size_t, const float* row) {
      for (size_t i = 0; i < cols; ++i) sums[i] += row[i];
    });
  });
  std::vector<float> pooled;
  for (const double sum : sums) pooled.push_back(float(sum / one.wanted));
  return pooled;
}

// draw(row of p, the text up to there). Where the last token has no draw and nothing says why, its
// logits are not finite.
template <class Draw>
void Session::Impl::draws_of(const Extension& p, Draws& out, Draw draw) {
  if (p.wanted == 0) return out.forget();
  Impl& s = *p.session->impl_;
  const size_t last = size_t(p.wanted) - 1;
  const auto draw_row = [&](size_t row, std::span<const TokenId> text) {
    return draw(last + row, text);
  };
  right_draws(s.tokens, p.guesses, draw_row, out);
  s.take_branch(out.right);
  if (out.tokens.empty() && !out.error)
    out.error = not_finite(Result::logits, s.tokens.back(), int(s.tokens.size()) - 1);
  p.session->rewind(p.session->position());
}

std::vector<Draws> Session::draw_all(std::span<const Extension> extensions) {
  std::vector<Draws> out;
  draw_all(extensions, out);
  return out;
}

void Session::draw_all(std::span<const Extension> extensions, std::vector<Draws>& out) {
  check(extensions);
  out.resize(extensions.size());
  try {
    Impl::drawn(extensions, out);
  } catch (const Abandoned&) {
    for (Draws& draws : out) draws.forget(), draws.abandoned = true;
  }
}

void Session::Impl::drawn(std::span<const Extension> extensions, std::vector<Draws>& out) {
  const std::atomic<bool>* const stop = interrupt_of(extensions);
  EngineImpl& e = extensions[0].session->impl_->e();
  const size_t vocab = size_t(e.model->vocab),
               drawable = e.tokenizer ? size_t(e.tokenizer->size()) : vocab;
  size_t first = 0;  // row of an extension
  const std::vector<CudaDraw> there =
      e.device ? device_draws(extensions, drawable) : std::vector<CudaDraw>();
  if (!there.empty()) {
    std::vector<TokenId> drawn;
    append(extensions, [&] {
      each_pass(extensions, Result::logits, there, stop,
                [&](size_t) { drawn.insert(drawn.end(), e.tokens().begin(), e.tokens().end()); });
    });
    for (size_t i = 0; i < extensions.size(); ++i) {
      draws_of(extensions[i], out[i], [&](size_t row, auto) {
        const TokenId token = drawn[first + row];
        return token < 0 ? std::nullopt : std::optional(token);
      });
      first += extensions[i].drawn();
    }
    return;
  }
  const bool both = std::ranges::any_of(extensions, &Extension::hidden);
  size_t token = 0;  // the first of an extension, of all in the pass
  const std::span<const float> logits =
      rows(extensions, both ? Result::both : Result::logits, false, stop);
  for (size_t i = 0; i < extensions.size(); ++i) {
    const Extension& p = extensions[i];
    Draws& draws = out[i];
    draws_of(p, draws, [&](size_t row, std::span<const TokenId> history) {
      const auto of_token = logits.subspan((first + row) * vocab, vocab);
      if (!finite(of_token)) return std::optional<TokenId>();
      const TokenId token = p.sampler->draw(of_token.first(drawable), history);
      if (p.scored)
        draws.log_probabilities.push_back(
            log_probabilities(of_token.first(drawable), token, *p.scored));
      return std::optional(token);
    });
    if (p.hidden && !draws.error) {
      std::vector<float>& hidden = draws.hidden;
      hidden = extensions[0].session->impl_->hidden_of(p, token, draws.right);
      // A row goes with the token behind it; behind the last right guess none could be drawn.
      const size_t cols = size_t(e.hidden), right = hidden.size() / cols - p.tokens.size();
      if (right > 0 && draws.tokens.size() == right) hidden.resize(hidden.size() - cols);
    }
    first += p.drawn(), token += p.size();
  }
}

// Of the tokens of an extension, the first of which is `token` of the pass, and of the guesses up
// to the last one that is right.
std::vector<float> Session::Impl::hidden_of(const Extension& p, size_t token, int right) {
  const size_t cols = size_t(e().beside);
  std::vector<size_t> guesses;
  for (; right >= 0; right = p.guesses[size_t(right)].parent)
    guesses.insert(guesses.begin(), token + p.tokens.size() + size_t(right));
  std::vector<float> out(hidden_.begin() + ptrdiff_t(token * cols),
                         hidden_.begin() + ptrdiff_t((token + p.tokens.size()) * cols));
  for (const size_t i : guesses)
    out.insert(out.end(), hidden_.begin() + ptrdiff_t(i * cols),
               hidden_.begin() + ptrdiff_t((i + 1) * cols));
  return out;
}

std::vector<TokenId> Session::draw(std::span<const TokenId> tokens, Sampler& sampler,
                                   std::span<const Draft::Node> guesses) {
  const int before = position();
  const Extension one{this, tokens, 1, &sampler, std::nullopt, nullptr, guesses};
  Draws draws = std::move(draw_all({&one, 1})[0]);
  if (!draws.error) return std::move(draws.tokens);
  rewind(before);
  throw *draws.error;
}

void Session::check(std::span<const Extension> extensions) {
  ENSURE(!extensions.empty() && extensions[0].session, "there is something to extend");
  const EngineImpl& e = extensions[0].session->impl_->e();
  for (size_t i = 0; i < extensions.size(); ++i) {
    const Extension& p = extensions[i];
    ENSURE(&p.session->impl_->e() == &e, "sessions of one engine");
    ENSURE(p.wanted >= (p.guesses.empty() ? 0 : 1) && size_t(p.wanted) <= p.tokens.size(),
           "logits of tokens that are there");
    for (size_t k = 0; k < i; ++k)
      ENSURE(extensions[k].session != p.session, "a session comes once");
    ENSURE(p.rows.size() == p.size() * size_t(e.model->row_columns), "a row comes with each token");
    for (TokenId t : p.tokens)
      ENSURE(t >= 0 && t < e.model->vocab, "token ids come from this model's tokenizer");
    int deepest = 0;
    for (int k = 0; k < int(p.guesses.size()); ++k) {
      const auto [token, parent] = p.guesses[size_t(k)];
      ENSURE(parent >= -1 && parent < k, "parents come first");
      ENSURE(token >= 0 && token < e.model->vocab, "token ids come from this model's tokenizer");
      deepest = std::max(deepest, Draft::depth(p.guesses, k) + 1);
    }
    expect_room(*p.session, p.tokens.size() + size_t(deepest));
  }
}

// All tokens and guesses in passes of at most max_batch, with the outputs wanted in each; take(row)
// of the pass whose first output is `row` of all.
template <class Take>
void Session::Impl::each_pass(std::span<const Extension> extensions, Result what,
                              std::span<const CudaDraw> draws, const std::atomic<bool>* stop,
                              Take take) {
  EngineImpl& e = extensions[0].session->impl_->e();
  Batch& b = e.batch;
  size_t row = 0, next = 0, at = 0;
  auto skip_done = [&] {
    while (next < extensions.size() && at == extensions[next].size()) ++next, at = 0;
    return next < extensions.size();
  };
  while (skip_done()) {
    clear(b);
    e.rows.clear();
    while (skip_done() && b.size() < e.max_batch) {
      const Extension& p = extensions[next];
      const size_t n = std::min(p.size() - at, size_t(e.max_batch - b.size()));
      p.session->impl_->join(b, p, at, n);
      at += n;
    }
    const size_t n = b.outputs.size();
    if (!e.run(what, draws.empty() ? draws : draws.subspan(row, n), stop)) throw Abandoned();
    // Else nobody waits: a device goes on to the next.
    if (n > 0 || what == Result::both) take(row);
    row += n;
  }
}

template <class Take>
void Session::Impl::each_row(std::span<const Extension> extensions, Result what, bool checked,
                             const std::atomic<bool>* stop, Take take) {
  EngineImpl& e = extensions[0].session->impl_->e();
  const int64_t cols = e.columns(what);
  std::vector<float>& hidden = extensions[0].session->impl_->hidden_;
  hidden.clear();
  each_pass(extensions, what, {}, stop, [&](size_t row) {
    const float* rows = e.result();
    if (what == Result::both)
      hidden.insert(hidden.end(), e.hidden_rows(), e.hidden_rows() + e.beside * e.batch.size());
    for (size_t i = 0; i < e.batch.outputs.size(); ++i, rows += cols) {
      const size_t t = size_t(e.batch.outputs[i]);
      if (checked && !finite({rows, size_t(cols)}))
        throw not_finite(what, e.batch.tokens[t], e.batch.positions[t]);
      take(row + i, rows);
    }
  });
}

size_t Session::common_prefix(std::span<const TokenId> tokens) const {
  const auto& held = impl_->tokens;
  return size_t(std::mismatch(held.begin(), held.end(), tokens.begin(), tokens.end()).first -
                held.begin());
}

std::span<const TokenId> Session::reuse(std::span<const TokenId> tokens) {
  ENSURE(!tokens.empty(), "a model needs a token to start from");
  rewind(int(std::min(common_prefix(tokens), tokens.size() - 1)));
  impl_->share_known(tokens.first(tokens.size() - 1));
  return tokens.subspan(size_t(position()));
}

int Session::rewind(int position) {
  ENSURE(position >= 0 && position <= this->position(), "rewinding goes back");
  Impl& s = *impl_;
  std::erase_if(s.snapshots, [&](const auto& x) { return x.position > position; });
  if (!std::all_of(s.tables.begin(), s.tables.end(),
                   [&](const PageTable& t) { return t.reaches(position); })) {
    position = s.snapshots.empty() ? 0 : s.snapshots.back().position;
    if (position > 0) s.tables = s.snapshots.back().tables;
  }
  for (PageTable& t : s.tables) t.keep(position);
  s.tokens.resize(size_t(position));
  while (s.link && s.link->end > position) s.stand_at(s.link->before);
  return position;
}

int Session::branches(int tokens, int sessions) const {
  // The last page that they share is copied.
  const int64_t pages = tokens / kPage + 2;
  int64_t most = Draft::kFirst * kPage;
  const EngineImpl& e = impl_->e();
  for (size_t i = 0; i < e.pools.size(); ++i) {
    if (e.states.pools[i].recurrent) return 0;
    const int64_t left = e.pools[i].size() - e.pools[i].in_use();
    most = std::min(most, left / (sessions * pages) - 1);
  }
  return int(std::max<int64_t>(most, 0));
}

std::unique_ptr<Session> Session::fork() {
  auto copy = std::make_unique<Impl>();
  copy->engine = impl_->engine, copy->tokens = impl_->tokens, copy->tables = impl_->tables;
  copy->snapshots = impl_->snapshots, copy->snapshot_cells = impl_->snapshot_cells;
  copy->stand_at(impl_->link);
  return std::unique_ptr<Session>(new Session(std::move(copy)));
}

}  // namespace chaski
