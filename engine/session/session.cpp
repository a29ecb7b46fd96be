#include "engine/session/session.h"

#include <algorithm>

#include "engine/session/pass.h"
#include "engine/session/session_impl.h"
#include "ggml-like-tensor/base/memory.h"
#include "models/architecture.h"

namespace chaski {

void Session::Impl::take_snapshot(int position, bool draft) {
  const auto& pools = kv().states.pools;
  if (position == 0 ||
      std::none_of(pools.begin(), pools.end(), [](const auto& p) { return p.recurrent; }))
    return;
  if (!draft && kv().prefixes) return;
  const auto position_of = [&](size_t n) { return n > 0 ? snapshots[n - 1].position : 0; };
  const size_t n = snapshots.size();
  if (!draft && position - position_of(n) < snapshot_cells) return;
  // A snapshot close to the one before it was made for a draft only.
  if (n > 0 && position_of(n) - position_of(n - 1) < snapshot_cells) snapshots.pop_back();
  snapshots.push_back({position, tables});
  for (PageTable& t : snapshots.back().tables) t.drop_before(position);
  if (snapshots.size() <= kSnapshots + 1) return;
  std::vector<Snapshot> every_other;
  for (size_t i = 1; i < snapshots.size(); i += 2) every_other.push_back(std::move(snapshots[i]));
  snapshots = std::move(every_other);
  snapshot_cells *= 2;
}

void Session::Impl::move_link(PrefixIndex::Link* to) {
  if (to) PrefixIndex::retain(to);
  if (link) kv().prefixes->release(link);
  link = to;
}

int Session::Impl::batch_end(int cell, int end, bool all) const {
  if (!engine->kv_cache().prefixes || !has_recurrent()) return end;
  // A few tokens are not worth a state: they would be a batch of their own.
  const int after = prompt_end + kStateTail;
  const int step =
      std::max(cell / kStateStep + 1, (after + kStateStep - 1) / kStateStep) * kStateStep;
  if (step < end && (!all || step + kStateTail <= end)) return step;
  // At least one token remains, whose logits are wanted.
  const int last = (end - 1) / kPage * kPage;
  return all && last >= after && last > cell ? last : end;
}

bool Session::Impl::has_recurrent() const {
  return std::ranges::any_of(tables, [](const PageTable& t) { return t.recurrent(); });
}

Session::Impl::~Impl() {
  try {
    index_end();
  } catch (const std::exception&) {  // memory is short: the next text is read again
  }
  move_link(nullptr);
}

void Session::Impl::index_pages(int end) { index(end, {}, false); }
void Session::Impl::index_part(int end, std::span<const TokenId> more) {
  if (!has_recurrent()) return;
  index(end, more, true);
  prompt_end = end;
}

void Session::Impl::index(int end, std::span<const TokenId> more, bool due) {
  if (!kv().prefixes) return;
  const auto token = [&](size_t i) {
    return i < tokens.size() ? tokens[i] : more[i - tokens.size()];
  };
  for (int from = link ? link->end : 0; from + kPage <= end; from += kPage) {
    const int page = from / kPage, to = from + kPage;
    const bool snapshot = due ? to == end : to % kStateStep == 0;
    pages_.clear();
    for (const PageTable& t : tables)
      pages_.push_back(!t.recurrent() ? t.page(page) : snapshot ? t.state_at(to) : kNoPage);
    std::array<TokenId, kPage> of_page;
    for (size_t i = 0; i < of_page.size(); ++i) of_page[i] = token(size_t(from) + i);
    index_page(page, of_page);
    if (snapshot && !due) refresh_prompt_state();
  }
}

// Adds `pages_` as page `page`, with these tokens. If two sessions read the same page at the same
// time, they share one copy from now on.
void Session::Impl::index_page(int page, std::span<const TokenId> of_page) {
  move_link(kv().prefixes->add(link, of_page, pages_));
  for (size_t i = 0; i < tables.size(); ++i)
    if (const int32_t known = link->places[i];
        known != kNoPage && pages_[i] != kNoPage && known != pages_[i])
      tables[i].share(tables[i].recurrent() ? 0 : page, known);
}

// A long answer, and forks that end, enter many states. The one at the end of the prompt counts as
// used after them: if the template leaves the thoughts of the answer away, the next turn begins
// there.
void Session::Impl::refresh_prompt_state() {
  const PrefixIndex::Link* const at = indexed_state(prompt_end);
  for (size_t i = 0; at && i < tables.size(); ++i)
    if (tables[i].recurrent())
      kv().pools[i].share(at->places[i]), kv().pools[i].release(at->places[i]);
}

void Session::Impl::index_state(int position, std::span<const int32_t> places) {
  if (!kv().prefixes) return;
  for (int page = 0; page < position / kPage; ++page) {
    pages_.clear();
    for (size_t i = 0; i < tables.size(); ++i)
      pages_.push_back(!tables[i].recurrent()           ? tables[i].page(page)
                       : (page + 1) * kPage == position ? places[i]
                                                        : kNoPage);
    move_link(kv().prefixes->add(
        link, std::span(tokens).subspan(size_t(page) * kPage, size_t(kPage)), pages_));
  }
  prompt_end = position;
}

void Session::Impl::index_end() {
  const auto end = int(tokens.size());
  if (!kv().prefixes || !has_recurrent() || tentative || drops_end || end == 0) return;
  for (const PageTable& t : tables)
    if (t.recurrent() && t.state_at(end) == kNoPage) return;
  index(end, {}, false);
  const int from = (end - 1) / kPage * kPage;
  PrefixIndex::Link* before = link;
  while (before && before->end > from) before = before->before;
  pages_.clear();
  for (const PageTable& t : tables)
    pages_.push_back(t.recurrent() ? t.state_at(end) : t.page(from / kPage));
  PrefixIndex::Link* const last =
      kv().prefixes->add(before, std::span(tokens).subspan(size_t(from)), pages_);
  // If other links have these pages, nothing holds this one.
  PrefixIndex::retain(last);
  kv().prefixes->release(last);
  refresh_prompt_state();
}

const PrefixIndex::Link* Session::Impl::indexed_state(int position) const {
  for (const PrefixIndex::Link* l = link; l; l = l->before) {
    if (l->end > position) continue;
    bool whole = true;
    for (size_t i = 0; i < tables.size(); ++i)
      whole =
          whole && (tables[i].recurrent() ? l->places[i] != kNoPage : tables[i].reaches(l->end));
    if (whole) return l;
  }
  return nullptr;
}

void Session::Impl::share_indexed(std::span<const TokenId> text) {
  const auto held = int(tokens.size());
  const int grain = has_recurrent() ? 1 : kPage;  // a state may be anywhere
  if (!kv().prefixes || int(text.size()) / grain <= held / grain) return;
  index_pages(held);
  std::vector<PrefixIndex::Link*> chain(size_t(held / kPage));
  for (PrefixIndex::Link* l = link; l; l = l->before) chain[size_t(l->end / kPage) - 1] = l;
  while ((chain.size() + 1) * kPage <= text.size()) {
    PrefixIndex::Link* const next = kv().prefixes->find(
        chain.empty() ? nullptr : chain.back(), text.subspan(chain.size() * kPage, size_t(kPage)));
    if (!next) break;
    chain.push_back(next);
  }
  // By page and pool: the first page of the unbroken run of indexed pages that ends here.
  std::vector<std::vector<int>> runs(chain.size(), std::vector<int>(tables.size()));
  for (size_t page = 0; page < chain.size(); ++page)
    for (size_t i = 0; i < tables.size(); ++i)
      runs[page][i] = tables[i].recurrent()               ? int(page) + 1
                      : chain[page]->places[i] == kNoPage ? int(page) + 1
                      : page > 0                          ? runs[page - 1][i]
                                                          : 0;
  // Share only as far as each pool has all cells that the next token attends to. `last` is the link
  // at whose end the session would continue, after `before` whole pages.
  const auto reaches = [&](const PrefixIndex::Link* last, int before) {
    for (size_t i = 0; i < tables.size(); ++i)
      if (last->places[i] == kNoPage ||
          (!tables[i].recurrent() &&
           (before > 0 ? runs[size_t(before) - 1][i] : 0) > tables[i].first_for(last->end)))
        return false;
    return true;
  };
  PrefixIndex::Link* last = nullptr;
  auto before = int(chain.size());
  for (; before >= held / kPage && !last; --before) {
    PrefixIndex::Link* const link_before = before > 0 ? chain[size_t(before) - 1] : nullptr;
    if (grain == 1)
      last = kv().prefixes->find_end(link_before, text.subspan(size_t(before) * kPage));
    if (last && reaches(last, before)) break;
    last = before > 0 && reaches(link_before, before - 1) ? link_before : nullptr;
  }
  if (!last || last->end <= held) return;
  const int cells = last->end;
  std::vector<int32_t> shared;
  before = (cells - 1) / kPage;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i].recurrent()) {
      tables[i].adopt_state(last->places[i], cells);
      continue;
    }
    // as many pages as the session would have kept if it had read the tokens
    const int first = std::max(before > 0 ? runs[size_t(before) - 1][i] : 0,
                               tables[i].first_for(std::max(0, cells - kGoBack)));
    shared.clear();
    for (int page = first; page < before; ++page) shared.push_back(chain[size_t(page)]->places[i]);
    shared.push_back(last->places[i]);
    tables[i].adopt(first, shared);
    tables[i].keep(cells);
  }
  tokens.assign(text.begin(), text.begin() + cells);
  move_link(cells % kPage == 0 ? last : last->before);
  if (grain == 1) prompt_end = cells;
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

std::unique_ptr<Session> Engine::session() {
  auto impl = std::make_unique<Session::Impl>();
  impl->engine = shared_from_this();
  KvCache& kv = kv_cache();
  const auto& kinds = kv.states.pools;
  const std::vector<int64_t> most = pages_of_session(kinds, context_length(), batch_length());
  impl->tables.reserve(kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i)
    impl->tables.emplace_back(kv.pools[i], kinds[i], context_length(), most[i]);
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const std::vector<TokenId>& Session::tokens() const { return impl_->tokens; }
int Session::room() const { return impl_->engine->context_length() - position(); }
Engine& Session::engine() const { return *impl_->engine; }

std::span<const float> Session::extend(std::span<const TokenId> tokens, int wanted) {
  const Extension one{.session = this, .tokens = tokens, .wanted = wanted};
  Pass pass({&one, 1});
  pass.run();
  return pass.rows();
}

std::span<const float> Session::hidden(std::span<const TokenId> tokens, int wanted) {
  const Extension one{.session = this, .tokens = tokens, .wanted = wanted};
  Pass pass({&one, 1}, Result::hidden);
  pass.run();
  return pass.rows();
}

std::optional<Session::Next> Session::extend(std::span<const TokenId> tokens,
                                             std::span<const float> rows,
                                             const std::atomic<bool>* interrupt) {
  const Extension one{
      .session = this, .tokens = tokens, .interrupt = interrupt, .input_rows = rows};
  Pass pass({&one, 1}, Result::both);
  if (!pass.run()) return std::nullopt;
  return Next{pass.rows(), pass.hidden(0, tokens.size() - 1)};
}

// Sums in the order of the tokens, so that the result does not depend on the batches.
std::vector<float> Session::pooled(std::span<const TokenId> tokens) {
  ENSURE(!tokens.empty(), "an embedding is of at least one token");
  const bool mean = engine().model().pooling == Model::Pooling::mean;
  const Extension one{.session = this, .tokens = tokens, .wanted = mean ? int(tokens.size()) : 1};
  std::vector<double> sums(size_t(engine().hidden_size()));
  Pass({&one, 1}, Result::hidden).each_row([&](std::span<const float> row) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += row[i];
  });
  std::vector<float> pooled;
  for (const double sum : sums) pooled.push_back(float(sum / one.wanted));
  return pooled;
}

std::vector<TokenId> Session::draw(std::span<const TokenId> tokens, Sampler& sampler,
                                   std::span<const Draft::Node> draft) {
  const int before = position();
  const Extension one{.session = this, .tokens = tokens, .sampler = &sampler, .draft = draft};
  std::vector<Draws> draws;
  Pass({&one, 1}).draw(draws);
  if (!draws[0].error) return std::move(draws[0].tokens);
  rewind(before);
  throw *draws[0].error;
}

size_t Session::common_prefix(std::span<const TokenId> tokens) const {
  const auto& held = impl_->tokens;
  return size_t(std::mismatch(held.begin(), held.end(), tokens.begin(), tokens.end()).first -
                held.begin());
}

std::span<const TokenId> Session::reuse(std::span<const TokenId> tokens) {
  ENSURE(!tokens.empty(), "a model needs a token to start from");
  const auto common = int(std::min(common_prefix(tokens), tokens.size() - 1));
  if (common < position()) impl_->index_end();
  rewind(common);
  impl_->share_indexed(tokens.first(tokens.size() - 1));
  return tokens.subspan(size_t(position()));
}

int Session::rewind(int position) {
  ENSURE(position >= 0 && position <= this->position(), "rewinding goes back");
  Impl& s = *impl_;
  std::erase_if(s.snapshots, [&](const auto& x) { return x.position > position; });
  if (!std::all_of(s.tables.begin(), s.tables.end(),
                   [&](const PageTable& t) { return t.reaches(position); })) {
    const PrefixIndex::Link* const known = s.indexed_state(position);
    position = s.snapshots.empty() ? 0 : s.snapshots.back().position;
    if (known && known->end > position) {
      position = known->end;
      for (size_t i = 0; i < s.tables.size(); ++i)
        if (s.tables[i].recurrent()) s.tables[i].adopt_state(known->places[i], position);
    } else if (position > 0) {
      s.tables = s.snapshots.back().tables;
    }
  }
  for (PageTable& t : s.tables) t.keep(position);
  s.tokens.resize(size_t(position));
  s.prompt_end = std::min(s.prompt_end, position);
  while (s.link && s.link->end > position) s.move_link(s.link->before);
  return position;
}

int Session::branches(int tokens, int sessions) const {
  const int64_t pages = pages_of_branch(tokens);
  int64_t most = Draft::kFirst * kPage;
  const KvCache& kv = impl_->kv();
  for (size_t i = 0; i < kv.pools.size(); ++i) {
    if (kv.states.pools[i].recurrent) return 0;
    const int64_t left = kv.pools[i].size() - kv.pools[i].in_use();
    most = std::min(most, left / (sessions * pages) - 1);
  }
  return int(std::max<int64_t>(most, 0));
}

bool Session::has_memory_for(int branches, int tokens, int sessions) const {
  if (branches == 0) return true;
  uint64_t bytes = 0;
  for (const KvPool& pool : impl_->kv().pools)
    bytes += pool.new_bytes(int64_t(sessions) * (branches + 1) * pages_of_branch(tokens));
  if (bytes == 0) return true;
  const auto have = usable_pages();
  return !have || bytes <= *have;
}

void Session::drop_end() { impl_->drops_end = true; }

std::unique_ptr<Session> Session::fork() {
  auto copy = std::make_unique<Impl>();
  copy->engine = impl_->engine, copy->tokens = impl_->tokens, copy->tables = impl_->tables;
  copy->snapshots = impl_->snapshots, copy->snapshot_cells = impl_->snapshot_cells;
  copy->prompt_end = impl_->prompt_end, copy->drops_end = impl_->drops_end;
  copy->tentative = true;  // until it reads something: this session enters the text that both have
  copy->move_link(impl_->link);
  return std::unique_ptr<Session>(new Session(std::move(copy)));
}

}  // namespace chaski
