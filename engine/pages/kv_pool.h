// Allocates the pages of a pool of states (state_layout.h) by number. Sessions share pages, so each
// page has a reference count. A kept page (one in the prefix index) stays after its last reference
// is released, until the pool needs its memory. The bytes are in HostPages, and for layers on a
// device in cuda/backend.h. Only the thread that makes the passes of the engine uses a pool.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <optional>
#include <vector>

namespace chaski {

constexpr int32_t kNoPage = -1;

// The memory of a pool's pages on the host. Pages of positions take it in whole groups: the bytes
// of a page are spread over its group (kv_layout.h).
struct PageMemory {
  size_t page_bytes = 0;
  bool in_groups = false;
  uint64_t bytes(int64_t pages) const;
};

class KvPool {
 public:
  // copy(from, to) copies the contents of a page, on the host and on the device.
  KvPool(int64_t pages, std::function<void(int32_t, int32_t)> copy, PageMemory memory = {})
      : size_(pages), memory_(memory), copy_(std::move(copy)) {}

  // Takes a page, with one reference. In this order: a free page, new memory up to the limit, the
  // least recently used idle page. Returns nothing if all pages are referenced.
  std::optional<int32_t> try_take();
  int32_t take();  // the same, but throws Error(memory)
  void share(int32_t page);
  void release(int32_t page);
  // Makes a page writable. A page with one reference that is not kept (see keep()) is returned
  // itself. Any other page is copied, and its reference is released. If no page is free for the
  // copy, a page with one reference stops being kept and is returned itself. With more references
  // it throws Error(memory).
  int32_t own(int32_t page);

  // From now on the contents of the page do not change, and it becomes idle when its last reference
  // is released. The least recently used idle page is evicted first, which calls on_gone().
  void keep(int32_t page) { pages_[size_t(page)].kept = true; }
  bool kept(int32_t page) const { return pages_[size_t(page)].kept; }
  void on_gone(std::function<void(int32_t)> gone) { gone_ = std::move(gone); }
  // Beyond `pages` pages, the pool takes no new memory as long as it can reuse an idle page.
  // keep_within_now() sets this limit to the number of pages that have memory now.
  void keep_within(int64_t pages) { within_ = pages; }
  int64_t within() const { return within_; }
  void keep_within_now() { within_ = int64_t(pages_.size()); }

  int64_t size() const { return size_; }
  int64_t in_use() const { return int64_t(held_.size()); }  // pages with references
  int64_t idle() const { return int64_t(idle_.size()); }    // kept pages without references
  int64_t shared() const { return shared_; }                // pages with several references
  int64_t copies() const { return copies_; }                // made by own() so far
  int64_t evicted() const { return evicted_; }              // idle pages reused so far
  // Pages that can be taken without new memory.
  int64_t spare() const { return idle() + int64_t(free_.size()); }
  uint64_t bytes() const { return memory_.bytes(int64_t(pages_.size())); }  // of its memory
  // Bytes of memory that the pool takes if `pages` more pages are taken.
  uint64_t new_bytes(int64_t pages) const;
  // Bytes of memory that it would take in addition to its present ones to hold `pages` pages.
  uint64_t bytes_to_hold(int64_t pages) const;
  // Whether own() would return the page itself.
  bool writable(int32_t page) const {
    const Page& p = pages_[size_t(page)];
    return p.references == 1 && !p.kept;
  }

 private:
  struct Page {
    int32_t references = 0;
    bool kept = false;
    std::list<int32_t>::iterator place;  // in one of the lists below
  };
  // Moving a page between lists allocates nothing, so destructors may release pages.
  void move(Page& page, std::list<int32_t>& from, std::list<int32_t>& to) {
    to.splice(to.end(), from, page.place);
  }
  void evict_oldest();  // frees the least recently used page of idle_, which is not empty
  // Drops the contents of a kept page.
  void drop(int32_t page);

  int64_t size_;
  PageMemory memory_;
  int64_t shared_ = 0, copies_ = 0, evicted_ = 0, within_ = std::numeric_limits<int64_t>::max();
  // Only of pages used so far: most of a long context is never filled.
  std::vector<Page> pages_;
  // Pages with references; free pages; kept pages without references, least recently used first.
  std::list<int32_t> held_, free_, idle_;
  std::function<void(int32_t, int32_t)> copy_;
  std::function<void(int32_t)> gone_;
};

// One reserved range of addresses. Memory is taken when a group of 16 pages is first written.
class HostPages {
 public:
  explicit HostPages(size_t bytes);  // 0: the device has all layers
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

}  // namespace chaski
