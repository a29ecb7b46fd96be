// Pages of a pool of states (state_layout.h). KvPool knows who holds which: numbers, and a
// reference count each, because sessions share pages. What is kept stays when nobody holds it any
// more, until there is no other page for who wants one. The bytes are HostPages' (and, of layers on
// a device, cuda/backend.h's).
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

class KvPool {
 public:
  // copy(from, to) copies what pages hold, wherever they are.
  KvPool(int64_t pages, std::function<void(int32_t, int32_t)> copy)
      : size_(pages), copy_(std::move(copy)) {}

  // a page with one reference; none when somebody holds each of them
  std::optional<int32_t> try_take();
  int32_t take();  // the same; throws Error(memory) instead
  void share(int32_t page);
  void release(int32_t page);
  // The page itself if nobody else holds it and it is not kept, else a copy, the old one released.
  // Where there is no room for a copy, what nobody else holds is kept no longer.
  int32_t own(int32_t page);

  // What the page holds stays as it is from now on, and the page too, until the pool wants room;
  // on_gone() is told then. Those go first that nobody holds for the longest time.
  void keep(int32_t page) { pages_[size_t(page)].kept = true; }
  bool kept(int32_t page) const { return pages_[size_t(page)].kept; }
  void on_gone(std::function<void(int32_t)> gone) { gone_ = std::move(gone); }
  // While there are kept pages that nobody holds, no page that was never used is taken beyond so
  // many; now(): not one more.
  void keep_within(int64_t pages) { within_ = pages; }
  void keep_within_now() { within_ = int64_t(pages_.size()); }

  int64_t size() const { return size_; }
  int64_t in_use() const { return int64_t(held_.size()); }  // somebody holds them
  int64_t idle() const { return int64_t(idle_.size()); }
  int64_t copies() const { return copies_; }  // pages that were copied so far
  // Pages that take no new memory.
  int64_t spare() const { return idle() + int64_t(free_.size()); }

 private:
  struct Page {
    int32_t references = 0;
    bool kept = false;
    std::list<int32_t>::iterator place;  // in one of the lists below
  };
  // A page goes from list to list without taking memory, so that destructors may give it back.
  void move(Page& page, std::list<int32_t>& from, std::list<int32_t>& to) {
    to.splice(to.end(), from, page.place);
  }
  // It holds nothing any more.
  void drop(int32_t page);

  int64_t size_, copies_ = 0, within_ = std::numeric_limits<int64_t>::max();
  // Of pages used so far: a file that promises a long context has not filled it yet.
  std::vector<Page> pages_;
  // Held by somebody; holding nothing; kept and held by nobody, for the longest time first.
  std::list<int32_t> held_, free_, idle_;
  std::function<void(int32_t, int32_t)> copy_;
  std::function<void(int32_t)> gone_;
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
