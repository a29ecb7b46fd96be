#include "engine/passes/rank_stage.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/passes/message.h"
#include "engine/passes/pipeline.h"

namespace chaski {

namespace {

// Every part of a gather begins with this. A rank with another number is out of step.
struct PartHeader {
  uint32_t message = 0;
  uint32_t abandoned = 0;  // of rank 0: the pass ends here
};
static_assert(sizeof(PartHeader) == kPartHeaderBytes);

// Of a block of quantized activations only the codes and the scale are sent. The sums follow.
constexpr size_t kActBytes = sizeof(Act::q) + sizeof(Act::d);

void put_act(const Act& a, std::byte* to) {
  std::memcpy(to, a.q, sizeof a.q);
  std::memcpy(to + sizeof a.q, &a.d, sizeof a.d);
}
void take_act(const std::byte* from, Act& a) {
  std::memcpy(a.q, from, sizeof a.q);
  std::memcpy(&a.d, from + sizeof a.q, sizeof a.d);
  a.set_sums();
}

// The lists of a batch that are sent whole.
auto lists_of(auto& b) {
  return std::array{&b.tokens, &b.positions, &b.cells, &b.sequences, &b.outputs};
}

// The columns of a rank.
struct OwnColumns {
  int64_t first, end;
  int64_t count() const { return end - first; }
};
OwnColumns columns_of(const Gather& g, int rank) {
  return {g.first[size_t(rank)], g.first[size_t(rank) + 1]};
}

void pack(const Step::Gathered& g, std::byte* to) {
  if (g.acts.data) {
    for (int64_t t = 0; t < g.own_acts.rows; ++t)
      for (int64_t b = 0; b < g.own_acts.blocks; ++b, to += kActBytes)
        put_act(g.own_acts.at(t, b), to);
  } else if (g.own.data) {
    std::memcpy(to, g.own.data, size_t(g.own.shape.rows * g.own.shape.cols) * sizeof(float));
  }
}

void unpack(const Step::Gathered& g, int rank, const std::byte* from) {
  const OwnColumns c = columns_of(*g.gather, rank);
  if (g.acts.data) {
    for (int64_t t = 0; t < g.acts.rows; ++t)
      for (int64_t b = c.first / 32; b < c.end / 32; ++b, from += kActBytes)
        take_act(from, g.acts.at(t, b));
    return;
  }
  const size_t bytes = size_t(c.count()) * sizeof(float);
  for (int64_t t = 0; t < g.whole.shape.rows; ++t, from += bytes)
    std::memcpy(g.whole.out_row(t) + c.first, from, bytes);
}

}  // namespace

size_t part_bytes(const Step::Gathered& g, int rank) {
  const OwnColumns c = columns_of(*g.gather, rank);
  return g.acts.data ? size_t(g.acts.rows * (c.count() / 32)) * kActBytes
                     : size_t(g.whole.shape.rows * c.count()) * sizeof(float);
}

RankStage::RankStage(const Model& model, Layers layers, const Batch& batch, Format kv,
                     std::shared_ptr<Crew> crew, int threads, bool threads_fixed,
                     std::shared_ptr<Link> link, int engine, std::unique_ptr<RankShare> share)
    : CpuStage(model, layers, batch, kv, std::move(crew), threads, threads_fixed),
      link_(std::move(link)),
      engine_(engine),
      own_share_(std::move(share)) {
  share_ = own_share_.get();
  where_.states = states_of(model, layers, kv, share_);
  executor_.exchange = this;
}

RankStage::~RankStage() {
  if (!open_) return;
  try {
    const std::scoped_lock lock(link_->in_use);
    std::string message = message_of(RankMessage::close, engine_);
    link_->broadcast(message);
  } catch (const std::exception&) {  // the other ranks have ended
  }
}

std::string RankStage::device() const { return fmt::format("cpu, {} ranks", link_->ranks()); }

void RankStage::reserve(std::span<const int64_t> pages) {
  if (link_->rank() == 0) CpuStage::reserve(pages);
}

void RankStage::copy_page(int pool, int32_t from, int32_t to) {
  if (link_->rank() == 0) {
    ENSURE(open_, "an engine of ranks is opened by open_on_all()");
    const std::scoped_lock lock(link_->in_use);
    std::string message = message_of(RankMessage::copy_page, engine_);
    append(message, int32_t(pool)), append(message, from), append(message, to);
    link_->broadcast(message);
  }
  CpuStage::copy_page(pool, from, to);
}

bool RankStage::run(const PassWork& work, std::span<const float> input) {
  ENSURE(input.empty(), "a model with input rows runs on one rank");
  PassWork here = work;
  here.stop = nullptr;  // all ranks abandon a pass at the same gather
  stop_ = work.stop, messages_ = 0;
  if (link_->rank() > 0) return CpuStage::run(here, input);
  ENSURE(open_, "an engine of ranks is opened by open_on_all()");
  const std::scoped_lock lock(link_->in_use);
  make_room(here);  // what does not fit is refused before the other ranks begin
  std::string message = describe(work);
  try {
    link_->broadcast(message);
    return CpuStage::run(here, input);
  } catch (...) {
    link_->give_up();
    throw;
  }
}

bool RankStage::complete(const Step& step) {
  // One message for each node of the whole graph.
  for (size_t i = 0, end; i < step.gathers.size(); i = end) {
    for (end = i + 1; end < step.gathers.size() &&
                      step.gathers[end].gather->message == step.gathers[i].gather->message;)
      ++end;
    if (!complete(std::span(step.gathers).subspan(i, end - i))) return false;
  }
  return true;
}

bool RankStage::complete(std::span<const Step::Gathered> gathers) {
  const int ranks = link_->ranks();
  const bool to_first =
      std::ranges::all_of(gathers, [](const auto& g) { return g.gather->for_first; });
  sizes_.assign(size_t(ranks), sizeof(PartHeader));
  for (int r = 0; r < ranks; ++r)
    for (const Step::Gathered& g : gathers) sizes_[size_t(r)] += part_bytes(g, r);
  size_t all = 0;
  for (const size_t size : sizes_) all += size;
  sent_.resize(sizes_[size_t(link_->rank())]), received_.resize(all);
  const PartHeader header{++messages_, stop_ && stop_->load(std::memory_order_relaxed)};
  std::memcpy(sent_.data(), &header, sizeof header);
  for (size_t i = 0, at = sizeof header; i < gathers.size(); ++i) {
    pack(gathers[i], sent_.data() + at);
    at += part_bytes(gathers[i], link_->rank());
  }
  link_->gather(sent_, sizes_, received_.data(), to_first);
  bool abandoned = false;
  const std::byte* from = received_.data();
  for (int r = 0; r < ranks; ++r) {
    if (to_first && link_->rank() > 0) break;
    PartHeader of;
    std::memcpy(&of, from, sizeof of);
    if (of.message != messages_)
      fail(Exit::io, "{} (rank {}) sends part {} of a pass, expected part {}", link_->host(r), r,
           of.message, messages_);
    abandoned = abandoned || of.abandoned;
    from += sizeof of;
    for (const Step::Gathered& g : gathers) unpack(g, r, from), from += part_bytes(g, r);
  }
  return !abandoned || to_first;
}

// Of the page tables only what differs from those of the last batch is sent.
std::string RankStage::describe(const PassWork& work) {
  std::string m = message_of(RankMessage::run, engine_);
  append(m, work.result), append(m, work.network);
  for (const auto* list : lists_of(batch_)) append_list(m, std::span(*list));
  std::vector<int32_t> pages;  // by sequence
  for (size_t t = 0; t < batch_.sequences.size(); ++t) {
    const auto s = size_t(batch_.sequences[t]);
    pages.resize(std::max(pages.size(), s + 1));
    pages[s] = std::max(pages[s], batch_.cells[t] / kPage + 1);
  }
  tables_.resize(batch_.tables.size());
  for (size_t pool = 0; pool < tables_.size(); ++pool) {
    tables_[pool].resize(std::max(tables_[pool].size(), pages.size()));
    for (size_t s = 0; s < pages.size(); ++s) {
      const size_t n = where_.states.pools[pool].recurrent ? 1 : size_t(pages[s]);
      const std::span<const int32_t> table(batch_.tables[pool][s], n);
      std::vector<int32_t>& known = tables_[pool][s];
      const auto same = size_t(std::ranges::mismatch(table, known).in1 - table.begin());
      append(m, uint32_t(same)), append_list(m, table.subspan(same));
      known.assign(table.begin(), table.end());
    }
    append_list(m, std::span(batch_.stores[pool]));
  }
  return m;
}

void RankStage::follow(const std::string& message, Pipeline& pipeline) {
  Cursor in = cursor_of(message);
  const RankMessage kind = kind_of(message);
  if (kind == RankMessage::copy_page) {
    const auto pool = in.take<int32_t>("pool"), from = in.take<int32_t>("from");
    return CpuStage::copy_page(pool, from, in.take<int32_t>("to"));
  }
  ENSURE(kind == RankMessage::run, "a rank is sent only passes and page copies here");
  PassWork work;
  Take{in}(work.result), Take{in}(work.network);
  Batch& b = pipeline.batch;
  for (auto* list : lists_of(b)) take_list(in, *list);
  const size_t sequences = b.sequences.empty() ? 0 : size_t(b.sequences.back()) + 1;
  tables_.resize(b.tables.size());
  for (size_t pool = 0; pool < tables_.size(); ++pool) {
    tables_[pool].resize(std::max(tables_[pool].size(), sequences));
    b.tables[pool].clear();
    for (size_t s = 0; s < sequences; ++s) {
      std::vector<int32_t> more;
      const auto same = in.take<uint32_t>("known pages");
      take_list(in, more);
      tables_[pool][s].resize(same);
      tables_[pool][s].insert(tables_[pool][s].end(), more.begin(), more.end());
      b.tables[pool].push_back(tables_[pool][s].data());
    }
    take_list(in, b.stores[pool]);
  }
  pipeline.run(work);
}

}  // namespace chaski
