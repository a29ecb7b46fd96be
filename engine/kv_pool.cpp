#include "engine/kv_pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

KvPool::KvPool(const KvLayout& layout, int64_t pages) : view_{layout, nullptr}, bytes_(size_t(pages) * layout.page_bytes()) {
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail(Exit::memory, "keys and values need {} bytes of address space: {}", bytes_, std::strerror(errno));
  // A stream is some 20 KB long: with pages of 4 KB every fifth line would wait for a translation. Only a wish: it may be refused.
  madvise(p, bytes_, MADV_HUGEPAGE);
  view_.pool = static_cast<std::byte*>(p);
  references_.assign(size_t(pages), 0);
}

KvPool::~KvPool() { munmap(view_.pool, bytes_); }

int32_t KvPool::take() {
  int32_t page;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else {
    if (size_t(fresh_) == references_.size())
      fail(Exit::memory, "all {} pages of keys and values ({} bytes) are in use", references_.size(), bytes_);
    page = fresh_++;
  }
  references_[size_t(page)] = 1;
  ++in_use_;
  return page;
}

void KvPool::release(int32_t page) {
  CHECK(references_[size_t(page)] > 0, "a page is released once per holder");
  if (--references_[size_t(page)] > 0) return;
  free_.push_back(page);
  --in_use_;
}

int32_t KvPool::own(int32_t page) {
  if (references_[size_t(page)] == 1) return page;
  const int32_t copy = take();
  for (int layer = 0; layer < view_.layout.layers; ++layer)
    for (int head = 0; head < view_.layout.heads; ++head) {
      std::memcpy(view_.keys(layer, head, copy), view_.keys(layer, head, page), view_.layout.k_bytes());
      std::memcpy(view_.values(layer, head, copy), view_.values(layer, head, page), view_.layout.v_bytes());
    }
  release(page);
  return copy;
}

}  // namespace chaski
