#include "engine/session/pass.h"

#include <algorithm>
#include <cstring>

#include "engine/passes/pipeline.h"
#include "engine/session/accept_draft.h"
#include "engine/session/session_impl.h"

namespace chaski {

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

size_t rows_of(std::span<const Extension> extensions) {
  size_t rows = 0;
  for (const Extension& p : extensions) rows += p.rows();
  return rows;
}

size_t tokens_of(std::span<const Extension> extensions) {
  size_t tokens = 0;
  for (const Extension& p : extensions) tokens += p.size();
  return tokens;
}

// Tokens that the sampler may draw. The logits of a model may have more columns, for padding.
size_t drawable(const Engine& e) {
  return size_t(e.has_tokenizer() ? e.tokenizer().size() : e.vocab_size());
}

// One draw for each row, in the form that a device takes. Empty if it cannot make all of them.
std::vector<CudaDraw> device_draws(std::span<const Extension> extensions, size_t vocab) {
  std::vector<CudaDraw> draws;
  for (const Extension& p : extensions) {
    if (p.wanted == 0) continue;
    const std::optional<PlainDraw>& plain = p.sampler->plain();
    if (!plain || p.log_probabilities) return {};
    const CudaDraw draw{.temperature = plain->temperature,
                        .top_p = plain->top_p,
                        .min_p = plain->min_p,
                        .seed = p.sampler->options().seed,
                        .top_k = plain->top_k,
                        .vocab = int(vocab)};
    if (!cuda_can_draw(draw)) return {};
    draws.insert(draws.end(), p.rows(), draw);
  }
  return draws;
}

// The flag that all extensions have in common, or null.
const std::atomic<bool>* interrupt_of(std::span<const Extension> extensions) {
  const std::atomic<bool>* const first = extensions[0].interrupt;
  for (const Extension& p : extensions)
    if (p.interrupt != first) return nullptr;
  return first;
}

void expect_room(const Session& s, size_t n) {
  if (int(n) > s.room())
    throw Error(Exit::prompt_too_long,
                fmt::format("{} tokens after {} do not fit into a context of {}", n, s.position(),
                            s.position() + s.room()),
                s.position() + int64_t(n), s.position() + s.room());
}

}  // namespace

// Nodes [first, end) of a draft: a branch other than the draft's first one, which uses the page
// tables of the session. Its page tables are copies that also store the nodes of `ancestors`, which
// are in other branches.
struct Pass::Branch {
  size_t extension;
  int first, end;
  std::vector<int> ancestors;
  std::vector<PageTable> tables;

  bool has(int node) const { return node >= first && node < end; }
  // node < 0: a token of the text
  bool sees(int node) const {
    return node < 0 || has(node) || std::ranges::find(ancestors, node) != ancestors.end();
  }
};

Pass::Pass(std::span<const Extension> extensions, Result result)
    : extensions_(extensions),
      engine_(checked_engine(extensions)),
      kv_(engine_.kv_cache()),
      pipeline_(engine_.pipeline()),
      result_(result) {}
Pass::~Pass() = default;

Session::Impl& Pass::impl(const Extension& extension) { return *extension.session->impl_; }

Engine& Pass::checked_engine(std::span<const Extension> extensions) {
  ENSURE(!extensions.empty() && extensions[0].session, "there is something to extend");
  Engine& e = extensions[0].session->engine();
  ENSURE(e.model().row_columns == 0 || extensions.size() == 1,
         "a pass of a model that reads input rows has one extension");
  for (size_t i = 0; i < extensions.size(); ++i) {
    const Extension& p = extensions[i];
    ENSURE(&p.session->engine() == &e, "sessions of one engine");
    ENSURE(p.wanted >= (p.draft.empty() ? 0 : 1) && size_t(p.wanted) <= p.tokens.size(),
           "logits of tokens that are there");
    for (size_t k = 0; k < i; ++k)
      ENSURE(extensions[k].session != p.session, "a session comes once");
    ENSURE(p.input_rows.size() == p.size() * size_t(e.model().row_columns),
           "a row comes with each token");
    for (TokenId t : p.tokens)
      ENSURE(t >= 0 && t < e.vocab_size(), "token ids come from this model's tokenizer");
    int depth = 0;
    for (int k = 0; k < int(p.draft.size()); ++k) {
      const auto [token, parent] = p.draft[size_t(k)];
      ENSURE(parent >= -1 && parent < k, "parents come first");
      ENSURE(token >= 0 && token < e.vocab_size(), "token ids come from this model's tokenizer");
      depth = std::max(depth, Draft::depth(p.draft, k) + 1);
    }
    expect_room(*p.session, p.tokens.size() + size_t(depth));
  }
  return e;
}

std::span<Pass::Branch> Pass::branches_of(size_t extension) {
  if (branches_.empty()) return {};
  return std::ranges::equal_range(branches_, extension, {}, &Branch::extension);
}

void Pass::make_branches(size_t extension) {
  const Extension& p = extensions_[extension];
  const auto nodes = p.draft;
  for (int i = 1; i < int(nodes.size()); ++i) {
    if (!Draft::begins_branch(nodes, i)) continue;
    for (const StateLayout::Pool& pool : kv_.states.pools)
      ENSURE(!pool.recurrent, "a draft has as many branches as Session::branches() says");
    const Session::Impl& s = impl(p);
    Branch b{extension, i, i + 1, {}, s.tables};
    while (b.end < int(nodes.size()) && !Draft::begins_branch(nodes, b.end)) ++b.end;
    for (int k = i; (k = nodes[size_t(k)].parent) >= 0;) b.ancestors.push_back(k);
    const auto from = int(s.tokens.size());
    const int end = from + int(p.tokens.size() + b.ancestors.size()) + b.end - b.first;
    for (PageTable& t : b.tables) t.prepare(from, end);
    branches_.push_back(std::move(b));
  }
}

// The session goes on in the pages of the branch that has this node.
void Pass::take_branch(size_t extension, int node) {
  for (Branch& b : branches_of(extension))
    if (b.has(node)) impl(extensions_[extension]).tables = std::move(b.tables);
}

// Bytes of new memory for the pages of all tokens that are not in a batch yet, and of branches
// until they are made.
uint64_t Pass::bytes_to_come() const {
  uint64_t bytes = 0;
  for (size_t pool = 0; pool < kv_.pools.size(); ++pool) {
    int64_t pages = 0;
    for (size_t i = next_; i < extensions_.size(); ++i) {
      const Extension& p = extensions_[i];
      const int held = p.session->position(), from = held + int(i == next_ ? at_ : 0);
      pages += impl(p).tables[pool].pages_to(from, held + int(p.size()));
      // A state is kept at the border of a batch and for a draft, and the next batch copies it.
      if (kv_.states.pools[pool].recurrent && p.size() > 1) ++pages;
      for (int node = 1; branches_.empty() && node < int(p.draft.size()); ++node)
        if (Draft::begins_branch(p.draft, node)) pages += pages_of_branch(int(p.size()));
    }
    bytes += kv_.pools[pool].new_bytes(pages);
  }
  return bytes;
}

void Pass::expect_memory() {
  kv_.expect_memory([this] { return bytes_to_come(); },
                    [this] {
                      int end = 0;
                      for (const Extension& p : extensions_)
                        end = std::max(end, p.session->position() + int(p.size()));
                      return fmt::format("the KV cache of {} positions", end);
                    });
}

void Pass::prepare() {
  // A state that the index gets is copied by the next token, so it comes first.
  for (const Extension& p : extensions_)
    if (!p.tentative) impl(p).index_pages(p.session->position());
  expect_memory();
  for (size_t i = 0; i < extensions_.size(); ++i) make_branches(i);
}

void Pass::commit() {
  for (const Extension& p : extensions_) {
    Session::Impl& s = impl(p);
    s.tokens.insert(s.tokens.end(), p.tokens.begin(), p.tokens.end());
    s.tentative = p.tentative;
    // All wanted tokens but the first may be rewound at once.
    if (!p.tentative) s.index_pages(p.session->position() - std::max(p.wanted - 1, 0));
  }
}

// Releases the pages that were taken for tokens that the sessions do not hold.
void Pass::give_back() {
  branches_.clear();
  for (const Extension& p : extensions_) p.session->rewind(p.session->position());
}

// Fills the batch of the pipeline with the next tokens. False if there are none.
bool Pass::fill_batch() {
  const auto more = [&] {
    while (next_ < extensions_.size() && at_ == extensions_[next_].size()) ++next_, at_ = 0;
    return next_ < extensions_.size();
  };
  if (!more()) return false;
  Batch& b = pipeline_.batch;
  clear(b);
  if (next_ > 0 || at_ > 0) expect_memory();  // again, because states were kept since
  promised_ = bytes_to_come();
  while (more() && b.size() < pipeline_.max_batch) {
    const Extension& p = extensions_[next_];
    const int from = p.session->position() + int(at_), end = p.session->position() + int(p.size());
    const auto left =
        int64_t(p.rows() > 1 ? end : impl(p).batch_end(from, end, p.wanted > 0)) - from;
    const auto n = size_t(std::min(left, pipeline_.max_batch - b.size()));
    add_to_batch(next_, at_, n);
    at_ += n;
    if (at_ < p.size()) break;  // a batch has a session once
  }
  return true;
}

// Adds n tokens and draft nodes of an extension, from its `at`-th one on.
void Pass::add_to_batch(size_t extension, size_t at, size_t n) {
  Batch& b = pipeline_.batch;
  const Extension& p = extensions_[extension];
  Session::Impl& s = impl(p);
  const std::span<Branch> branches = branches_of(extension);
  const size_t held = s.tokens.size(), given = p.tokens.size();
  s.take_snapshot(int(held + at), p.rows() > 1);
  if (!p.tentative && p.rows() <= 1 && at > 0) s.index_part(int(held + at), p.tokens);
  const size_t own =
      std::min(at + n, branches.empty() ? p.size() : given + size_t(branches[0].first));
  if (at < own)
    for (PageTable& t : s.tables) t.prepare(int(held + at), int(held + own));
  const auto store = [&](const std::vector<PageTable>& to, int cell) {
    for (size_t i = 0; i < to.size(); ++i)
      if (!kv_.states.pools[i].recurrent)
        b.stores[i].push_back({int32_t(b.size()), to[i].data()[cell / kPage], cell % kPage});
  };
  const size_t cols = size_t(engine_.model().row_columns);
  pipeline_.input_rows = p.input_rows.subspan(at * cols, n * cols);
  int32_t sequence = b.sequences.empty() ? -1 : b.sequences.back();
  for (size_t i = at; i < at + n; ++i) {
    const int node = int(i) - int(given);
    const auto of = std::ranges::find_if(branches, [&](const Branch& x) { return x.has(node); });
    const std::vector<PageTable>& to = of == branches.end() ? s.tables : of->tables;
    if (i == at || (of != branches.end() && of->first == node)) {
      ++sequence;
      for (size_t k = 0; k < to.size(); ++k) b.tables[k].push_back(to[k].data());
    }
    const int cell = int(held) + (node < 0 ? int(i) : int(given) + Draft::depth(p.draft, node));
    if (of == branches.end()) store(s.tables, cell);
    for (const Branch& branch : branches)
      if (branch.sees(node)) store(branch.tables, cell);
    if (i + p.rows() >= p.size()) b.outputs.push_back(int32_t(b.size()));
    b.tokens.push_back(node < 0 ? p.tokens[i] : p.draft[size_t(node)].token);
    b.positions.push_back(cell), b.cells.push_back(cell), b.sequences.push_back(sequence);
  }
}

// Runs all batches and calls take(first row, first token, whether it is the last batch) after each.
// The sessions hold the tokens afterwards, but not the draft. False: abandoned.
template <class Take>
bool Pass::evaluate(std::span<const CudaDraw> draws, Take take) {
  try {
    prepare();
    for (size_t row = 0, token = 0; fill_batch();) {
      const size_t n = pipeline_.batch.outputs.size();
      if (!pipeline_.run({.result = result_,
                          .draws = draws.empty() ? draws : draws.subspan(row, n),
                          .stop = interrupt_of(extensions_),
                          .promised = promised_})) {
        give_back();
        return false;
      }
      const bool last = token + size_t(pipeline_.batch.size()) == tokens_of(extensions_);
      // A device goes on to the next batch while nothing waits for its rows.
      if (n > 0 || result_ == Result::both) take(row, token, last);
      row += n, token += size_t(pipeline_.batch.size());
    }
    commit();
    return true;
  } catch (...) {
    give_back();
    throw;
  }
}

// Of the rows of the batch that has just run.
void Pass::expect_finite() const {
  const size_t cols = size_t(pipeline_.columns(result_));
  const float* const rows = pipeline_.result();
  for (size_t i = 0; i < pipeline_.batch.outputs.size(); ++i)
    if (const auto t = size_t(pipeline_.batch.outputs[i]); !finite({rows + i * cols, cols}))
      throw not_finite(result_, pipeline_.batch.tokens[t], pipeline_.batch.positions[t]);
}

// Makes the rows of the batch that has just run outlast the next one. If it is the last one and all
// rows are in it, they are read where they are.
void Pass::keep_rows(size_t first_row, size_t first_token, bool last) {
  const auto keep = [&](const float* from, size_t at, size_t n, size_t all,
                        std::vector<float>& kept) {
    if (last && at == 0) return from;
    kept.resize(all);
    std::copy_n(from, n, kept.data() + at);
    return static_cast<const float*>(kept.data());
  };
  const size_t cols = size_t(pipeline_.columns(result_));
  if (const size_t n = pipeline_.batch.outputs.size(); n > 0)
    rows_ = keep(pipeline_.result(), first_row * cols, n * cols, rows_of(extensions_) * cols,
                 pipeline_.kept_rows);
  if (result_ != Result::both) return;
  const size_t wide = size_t(pipeline_.second_columns());
  hidden_ = keep(pipeline_.second(), first_token * wide, size_t(pipeline_.batch.size()) * wide,
                 tokens_of(extensions_) * wide, pipeline_.kept_hidden);
}

bool Pass::run() {
  return evaluate({}, [&](size_t row, size_t token, bool last) {
    expect_finite();
    keep_rows(row, token, last);
  });
}

bool Pass::each_row(const std::function<void(std::span<const float>)>& take) {
  const size_t cols = size_t(pipeline_.columns(result_));
  return evaluate({}, [&](size_t, size_t, bool) {
    expect_finite();
    for (size_t i = 0; i < pipeline_.batch.outputs.size(); ++i)
      take({pipeline_.result() + i * cols, cols});
  });
}

std::span<const float> Pass::rows() const {
  return {rows_, rows_of(extensions_) * size_t(pipeline_.columns(result_))};
}

std::span<const float> Pass::row(size_t extension, size_t i) const {
  const size_t cols = size_t(pipeline_.columns(result_)),
               first = rows_of(extensions_.first(extension));
  return {rows_ + (first + i) * cols, cols};
}

std::span<const float> Pass::hidden(size_t extension, size_t i) const {
  const size_t cols = size_t(pipeline_.second_columns()),
               first = tokens_of(extensions_.first(extension));
  return {hidden_ + (first + i) * cols, cols};
}

// Verifies the draft by draw(row of the extension, text), which returns nothing if the logits are
// not finite.
template <class Draw>
void Pass::verify(size_t extension, Draws& out, Draw draw) {
  const Extension& p = extensions_[extension];
  if (p.wanted == 0) return out.clear();
  Session::Impl& s = impl(p);
  accept_draft(
      s.tokens, p.draft,
      [&](size_t i, std::span<const TokenId> text) { return draw(size_t(p.wanted) - 1 + i, text); },
      out);
  take_branch(extension, out.last_accepted);
  if (out.tokens.empty() && !out.error)
    out.error = not_finite(Result::logits, s.tokens.back(), int(s.tokens.size()) - 1);
  p.session->rewind(p.session->position());
}

std::optional<TokenId> Pass::draw_on_cpu(const Extension& p, std::span<const float> logits,
                                         std::span<const TokenId> text, Draws& out) const {
  if (!finite(logits)) return std::nullopt;
  const std::span<const float> allowed = logits.first(drawable(engine_));
  const TokenId token = p.sampler->draw(allowed, text);
  if (p.log_probabilities)
    out.log_probabilities.push_back(log_probabilities(allowed, token, *p.log_probabilities));
  return token;
}

// The hidden states of the tokens and of the accepted draft nodes. Each is the input of the token
// after it, so the last one is dropped if no token could be drawn from it.
void Pass::copy_hidden(size_t extension, Draws& out) const {
  const Extension& p = extensions_[extension];
  std::vector<int> accepted;  // the last one first
  for (int node = out.last_accepted; node >= 0; node = p.draft[size_t(node)].parent)
    accepted.push_back(node);
  if (!accepted.empty() && out.tokens.size() == accepted.size()) accepted.erase(accepted.begin());
  const float* const first = hidden(extension, 0).data();
  out.hidden.assign(first, first + p.tokens.size() * size_t(pipeline_.second_columns()));
  for (; !accepted.empty(); accepted.pop_back()) {
    const std::span<const float> row = hidden(extension, p.tokens.size() + size_t(accepted.back()));
    out.hidden.insert(out.hidden.end(), row.begin(), row.end());
  }
}

bool Pass::draw(std::vector<Draws>& out) {
  out.resize(extensions_.size());
  const std::vector<CudaDraw> on_device =
      pipeline_.can_draw() ? device_draws(extensions_, drawable(engine_)) : std::vector<CudaDraw>();
  if (on_device.empty() && std::ranges::any_of(extensions_, &Extension::hidden))
    result_ = Result::both;
  std::vector<TokenId> drawn;  // on the device
  const bool done = evaluate(on_device, [&](size_t row, size_t token, bool last) {
    if (on_device.empty()) return keep_rows(row, token, last);
    drawn.insert(drawn.end(), pipeline_.tokens().begin(), pipeline_.tokens().end());
  });
  if (!done) {
    for (Draws& draws : out) draws.clear(), draws.abandoned = true;
    return false;
  }
  for (size_t i = 0; i < extensions_.size(); ++i) {
    const Extension& p = extensions_[i];
    if (on_device.empty()) {
      verify(i, out[i], [&](size_t at, std::span<const TokenId> text) {
        return draw_on_cpu(p, row(i, at), text, out[i]);
      });
      if (p.hidden && !out[i].error) copy_hidden(i, out[i]);
      continue;
    }
    verify(i, out[i], [&](size_t at, auto) {
      const TokenId token = drawn[rows_of(extensions_.first(i)) + at];
      return token < 0 ? std::nullopt : std::optional(token);
    });
  }
  return true;
}

}  // namespace chaski
