// Pages of keys and values: one reserved range of addresses, of which memory is taken page by page as it is first written; a reference
// count per page, because forked sessions share them.
#pragma once
#include <cstdint>
#include <vector>

#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

class KvPool {
 public:
  KvPool(const KvLayout& layout, int64_t pages);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  int32_t take();                  // a page with one reference; throws Error(memory) when all are in use
  void share(int32_t page) { ++references_[size_t(page)]; }
  void release(int32_t page);
  int32_t own(int32_t page);       // the page itself if nobody else holds it, else a copy, the old one released
  const KvView& view() const { return view_; }
  int64_t in_use() const { return in_use_; }

 private:
  KvView view_;
  size_t bytes_;
  int64_t in_use_ = 0;
  int32_t fresh_ = 0;               // pages from here on were never used
  std::vector<int32_t> free_, references_;
};

}  // namespace chaski
