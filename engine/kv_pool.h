// Pages of a pool of states (state_layout.h). KvPool knows who holds which: numbers, and a
// reference count each, because forked sessions share pages. The bytes are HostPages' (and, of
// layers on a device, cuda/backend.h's).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace chaski {

class KvPool {
 public:
  // copy(from, to) copies what pages hold, wherever they are.
  KvPool(int64_t pages, std::function<void(int32_t, int32_t)> copy)
      : size_(pages), copy_(std::move(copy)) {}

  // a page with one reference; throws Error(memory) when all are in use
  int32_t take();
  void share(int32_t page) { ++references_[size_t(page)]; }
  void release(int32_t page);
  // the page itself if nobody else holds it, else a copy, the old one released
  int32_t own(int32_t page);
  int64_t size() const { return size_; }
  int64_t in_use() const { return in_use_; }

 private:
  int64_t size_, in_use_ = 0;
  // Of pages used so far: a file that promises a long context has not filled it yet.
  std::vector<int32_t> free_, references_;
  std::function<void(int32_t, int32_t)> copy_;
};

// One reserved range of addresses; memory is taken as groups of 16 pages are first written.
class HostPages {
 public:
  explicit HostPages(size_t bytes);  // 0: nothing is here
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

}  // namespace chaski
