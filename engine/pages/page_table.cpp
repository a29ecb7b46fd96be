#include "engine/pages/page_table.h"

#include <algorithm>
#include <utility>

namespace chaski {

std::vector<int64_t> pages_of_session(std::span<const StateLayout::Pool> pools, int context,
                                      int pass) {
  const bool copies =
      std::any_of(pools.begin(), pools.end(), [](const auto& p) { return p.recurrent; });
  // the snapshots, one for the running pass, and one that is being copied
  const int64_t sets = copies ? kSnapshots + 2 : 1;
  std::vector<int64_t> pages;
  for (const StateLayout::Pool& p : pools) {
    // all sets share all pages except the last one
    const int64_t all = (int64_t(context) + kPage - 1) / kPage + sets - 1,
                  now = (int64_t(p.window) + kGoBack + pass) / kPage + 2,
                  once = p.window / kPage + 2;
    pages.push_back(p.recurrent    ? sets + 1
                    : p.window > 0 ? std::min(all, now + (sets - 1) * once)
                                   : all);
  }
  return pages;
}

PageTable::PageTable(KvPool& pool, const StateLayout::Pool& kind, int context, int64_t most)
    : pool_(&pool), kind_(kind), pages_(size_t(pages_for(context))), most_(most) {}

PageTable::PageTable(const PageTable& other)
    : pool_(other.pool_),
      kind_(other.kind_),
      pages_(other.pages_),
      most_(other.most_),
      first_(other.first_),
      end_(other.end_),
      cells_(other.cells_) {
  for (int page = first_; page < end_; ++page) pool_->share(pages_[size_t(page)]);
}

int64_t PageTable::pages_to(int from, int end) const {
  const int64_t wanted = std::min<int64_t>(pages_for(end) - first_, most_);
  int64_t pages = std::max<int64_t>(0, wanted - (end_ - first_));
  for (int page = std::max(first_written(from), first_); page < end_; ++page)
    pages += !pool_->writable(pages_[size_t(page)]);
  return pages;
}

int PageTable::first_for(int cell) const {
  if (kind_.recurrent) return 0;
  return int(kind_.first_seen(cell)) / kPage;
}

void PageTable::prepare(int from, int end) {
  drop_before(from - kGoBack);
  for (int page = first_written(from); page < end_; ++page)
    pages_[size_t(page)] = pool_->own(pages_[size_t(page)]);
  for (; end_ < pages_for(end); ++end_) pages_[size_t(end_)] = pool_->take();
  cells_ = end;
}

void PageTable::take(int first, int cells) {
  for (first_ = end_ = first; end_ < pages_for(cells); ++end_) pages_[size_t(end_)] = pool_->take();
  cells_ = cells;
}

void PageTable::adopt(int first, std::span<const int32_t> pages) {
  for (const int32_t page : pages) pool_->share(page);
  keep(0);
  first_ = first, end_ = first + int(pages.size()), cells_ = end_ * kPage;
  std::copy(pages.begin(), pages.end(), pages_.begin() + first);
}

void PageTable::adopt_state(int32_t page, int cell) {
  pool_->share(page);
  keep(0);
  first_ = 0, end_ = 1, cells_ = cell;
  pages_[0] = page;
}

void PageTable::share(int n, int32_t page) {
  pool_->share(page);
  pool_->release(std::exchange(pages_[size_t(n)], page));
}

void PageTable::drop_before(int cell) {
  for (const int gone = std::min(first_for(cell), end_); first_ < gone; ++first_)
    pool_->release(pages_[size_t(first_)]);
}

bool PageTable::reaches(int cell) const {
  if (cell == 0) return true;
  return kind_.recurrent ? cell == cells_ : first_ <= first_for(cell);
}

void PageTable::keep(int cells) {
  for (; end_ > pages_for(cells); --end_)
    if (end_ > first_) pool_->release(pages_[size_t(end_ - 1)]);
  first_ = std::min(first_, end_);
  cells_ = cells;
}

}  // namespace chaski
