#include "engine/pages/kv_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

std::optional<int32_t> KvPool::try_take() {
  const auto used = int64_t(pages_.size());
  if (free_.empty() && used < size_ && (idle_.empty() || used < within_)) {
    pages_.emplace_back();
    free_.push_back(int32_t(used));
    pages_.back().place = std::prev(free_.end());
  }
  if (free_.empty() && !idle_.empty()) evict_oldest();
  if (free_.empty()) return std::nullopt;
  const int32_t page = free_.back();
  Page& p = pages_[size_t(page)];
  move(p, free_, held_);
  p.references = 1;
  return page;
}

void KvPool::evict_oldest() {
  const int32_t oldest = idle_.front();
  move(pages_[size_t(oldest)], idle_, free_);
  drop(oldest);
  ++evicted_;
}

int32_t KvPool::take() {
  const std::optional<int32_t> page = try_take();
  if (!page)
    fail(Exit::memory, "all {} pages of keys and values, of {} positions each, are in use", size_,
         kPage);
  return *page;
}

void KvPool::share(int32_t page) {
  Page& p = pages_[size_t(page)];
  ENSURE(p.references > 0 || p.kept, "a shared page has contents");
  ++p.references;
  if (p.references == 1) move(p, idle_, held_);
  if (p.references == 2) ++shared_;
}

void KvPool::release(int32_t page) {
  Page& p = pages_[size_t(page)];
  ENSURE(p.references > 0, "a page is released once per reference");
  --p.references;
  if (p.references == 0) move(p, held_, p.kept ? idle_ : free_);
  if (p.references == 1) --shared_;
}

void KvPool::drop(int32_t page) {
  pages_[size_t(page)].kept = false;
  if (gone_) gone_(page);
}

uint64_t PageMemory::bytes(int64_t pages) const {
  return uint64_t(in_groups ? whole_groups(pages) : pages) * page_bytes;
}

// In the order of try_take().
uint64_t KvPool::new_bytes(int64_t pages) const {
  const auto used = int64_t(pages_.size()), missing = pages - int64_t(free_.size());
  if (missing <= 0) return 0;
  const int64_t allowed = std::max(std::min(within_, size_) - used, int64_t(0)),
                fresh = std::min({missing, std::max(allowed, missing - idle()), size_ - used});
  return memory_.bytes(used + fresh) - memory_.bytes(used);
}

uint64_t KvPool::bytes_to_hold(int64_t pages) const {
  const auto used = int64_t(pages_.size());
  return memory_.bytes(std::max(pages, used)) - memory_.bytes(used);
}

int32_t KvPool::own(int32_t page) {
  if (writable(page)) return page;
  const bool alone = pages_[size_t(page)].references == 1;
  const std::optional<int32_t> copy = try_take();
  if (!copy && alone) {
    drop(page);
    return page;
  }
  const int32_t to = copy ? *copy : take();  // throws
  copy_(page, to);
  ++copies_;
  release(page);
  return to;
}

namespace {

constexpr size_t kSmallPages = 8 << 20;  // bytes; a group of a small model has 3 to 7 MB

}  // namespace

HostPages::HostPages(size_t bytes) : bytes_(bytes) {
  if (bytes_ == 0) return;
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail(Exit::memory, "keys and values need {} bytes of address space: {}", bytes_,
         std::strerror(errno));
  data_ = static_cast<std::byte*>(p);
  // Attention reads runs of about 20 KB. With 4 KB pages, TLB misses would slow them down. The
  // system may refuse huge pages. The first megabytes have none, because a short answer needs
  // little of them, and a huge page takes all of its memory at once.
  madvise(data_, std::min(bytes_, kSmallPages), MADV_NOHUGEPAGE);
  if (bytes_ > kSmallPages) madvise(data_ + kSmallPages, bytes_ - kSmallPages, MADV_HUGEPAGE);
}

HostPages::~HostPages() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace chaski
