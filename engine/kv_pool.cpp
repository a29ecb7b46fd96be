#include "engine/kv_pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

int32_t KvPool::take() {
  int32_t page;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else {
    if (int64_t(references_.size()) == size_)
      fail(Exit::memory, "all {} pages of keys and values, of {} positions each, are in use", size_,
           kPage);
    page = int32_t(references_.size());
    references_.push_back(0);
  }
  references_[size_t(page)] = 1;
  ++in_use_;
  return page;
}

void KvPool::release(int32_t page) {
  ENSURE(references_[size_t(page)] > 0, "a page is released once per holder");
  if (--references_[size_t(page)] > 0) return;
  free_.push_back(page);
  --in_use_;
}

int32_t KvPool::own(int32_t page) {
  if (references_[size_t(page)] == 1) return page;
  const int32_t copy = take();
  copy_(page, copy);
  release(page);
  return copy;
}

HostPages::HostPages(size_t bytes) : bytes_(bytes) {
  if (bytes_ == 0) return;
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail(Exit::memory, "keys and values need {} bytes of address space: {}", bytes_,
         std::strerror(errno));
  // A stream is some 20 KB long: with pages of 4 KB every fifth line would wait for a translation.
  // Only a wish: it may be refused.
  madvise(p, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}

HostPages::~HostPages() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace chaski
