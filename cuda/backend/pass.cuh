// Sends to the device what changes from pass to pass: a batch's tokens, positions, cells, tables
// and outputs, the settings of draws, and the angles of new positions. One copy from pinned memory
// to fixed addresses carries all of a pass. So a captured graph reads each pass at the same
// addresses.
#pragma once
#include <algorithm>

#include "cuda/backend.h"
#include "cuda/device/memory.cuh"
#include "cuda/table.h"

namespace chaski {

class PassBuffers {
 public:
  PassBuffers(int max_batch, int context, std::span<const StateLayout::Pool> pools)
      : max_batch_(max_batch),
        pools_(int(pools.size())),
        draw_bytes_((size_t(max_batch) * sizeof(CudaDraw) + 63) / 64 * 64) {
    for (const StateLayout::Pool& p : pools) recurrent_.push_back(p.recurrent);
    reserve((size_t(context / kPage + 1) * 4 + size_t(max_batch) * kStoreNumbers) * pools.size());
  }

  // Returns true if the device addresses moved, which makes captured graphs invalid. Waits until
  // the old memory is no longer read.
  bool reserve_for(const Batch& b, const CudaStream& stream) {
    if (table_entries(b) <= table_capacity_) return false;
    stream.wait();
    reserve(2 * table_entries(b));
    return true;
  }
  void send(const Batch& b, std::span<const CudaDraw> draws, const CudaStream& stream);

  // Fills in the addresses on the device.
  void place(DeviceBatch& d) const {
    d.tokens = list(device_, kTokens), d.positions = list(device_, kPositions),
    d.cells = list(device_, kCells), d.outputs = list(device_, kOutputs);
    for (int pool = 0; pool < pools_ && pool < kMostPools; ++pool)
      d.table_start[pool] = list(device_, kTableStart + pool);
    d.store_start = list(device_, kTableStart + pools_), d.tables = d.store_start + pools_ + 1;
  }
  const CudaDraw* draws() const { return device_.as<CudaDraw>(); }
  uint64_t bytes() const { return device_.size(); }

 private:
  static constexpr size_t kStoreNumbers = sizeof(Store) / sizeof(int32_t);

  // Order in memory: the settings of draws, max_batch at most; these lists of max_batch entries;
  // the starts of the tables by pool; the starts of the stores by pool; the tables; the stores.
  enum List { kTokens, kPositions, kCells, kOutputs, kTableStart };

  // Calls each(first token, end, number of pages). Tokens of one sequence are consecutive and their
  // cells grow. Its table is sent once, up to the page of its last token's cell.
  template <class Each>
  static void each_sequence(const Batch& b, Each each) {
    for (size_t t = 0, end; t < b.tokens.size(); t = end) {
      for (end = t + 1; end < b.tokens.size() && b.sequences[end] == b.sequences[t];) ++end;
      each(t, end, size_t(b.cells[end - 1]) / kPage + 1);
    }
  }
  static size_t table_entries(const Batch& b) {
    size_t n = 0;
    each_sequence(b, [&](size_t, size_t, size_t pages) { n += pages; });
    n *= b.tables.size();
    for (const auto& stores : b.stores) n += stores.size() * kStoreNumbers;
    return n;
  }
  template <class Bytes>
  int32_t* list(const Bytes& bytes, int i) const {
    return bytes.template as<int32_t>(draw_bytes_) + size_t(i) * size_t(max_batch_);
  }
  void reserve(size_t entries) {
    table_capacity_ = entries;
    const size_t bytes = draw_bytes_ + (size_t(kTableStart + pools_) * size_t(max_batch_) +
                                        size_t(pools_) + 1 + entries) *
                                           sizeof(int32_t);
    device_ = {};
    device_ = DeviceBytes(bytes, "the lists of a pass");
    for (Stage& s : stages_) s.pinned = {}, s.pinned = PinnedBytes(bytes, "the lists of a pass");
  }

  // Two, so that a pass can be prepared while the previous one still runs.
  struct Stage {
    PinnedBytes pinned;
    CudaEvent sent;
  };
  int max_batch_, pools_;
  size_t draw_bytes_;
  std::vector<bool> recurrent_;  // by pool
  size_t table_capacity_ = 0;
  DeviceBytes device_;
  Stage stages_[2];
  int next_ = 0;
};

inline void PassBuffers::send(const Batch& b, std::span<const CudaDraw> draws,
                              const CudaStream& stream) {
  ENSURE(b.size() <= max_batch_, "a batch must not exceed max_batch of the backend");
  Stage& s = stages_[next_ ^= 1];
  s.sent.wait();
  std::copy(draws.begin(), draws.end(), s.pinned.as<CudaDraw>());
  std::copy(b.tokens.begin(), b.tokens.end(), list(s.pinned, kTokens));
  std::copy(b.positions.begin(), b.positions.end(), list(s.pinned, kPositions));
  std::copy(b.cells.begin(), b.cells.end(), list(s.pinned, kCells));
  std::copy(b.outputs.begin(), b.outputs.end(), list(s.pinned, kOutputs));
  int32_t *const store_start = list(s.pinned, kTableStart + pools_), *const tables =
                                                                         store_start + pools_ + 1;
  size_t used = 0;
  for (int pool = 0; pool < pools_; ++pool) {
    int32_t* const start = list(s.pinned, kTableStart + pool);
    each_sequence(b, [&](size_t first, size_t end, size_t pages) {
      if (recurrent_[size_t(pool)]) pages = 1;
      const int32_t* table = b.tables[size_t(pool)][size_t(b.sequences[first])];
      std::copy(table, table + pages, tables + used);
      std::fill(start + first, start + end, int32_t(used));
      used += pages;
    });
  }
  for (int pool = 0; pool < pools_; ++pool) {
    const std::vector<Store>& stores = b.stores[size_t(pool)];
    store_start[pool] = int32_t(used);
    std::ranges::copy(std::as_bytes(std::span(stores)),
                      reinterpret_cast<std::byte*>(tables + used));
    used += stores.size() * kStoreNumbers;
  }
  store_start[pools_] = int32_t(used);
  stream.copy(device_.data(), s.pinned.data(),
              size_t(reinterpret_cast<std::byte*>(tables + used) - s.pinned.data()),
              cudaMemcpyHostToDevice);
  s.sent.record(stream);
}

// The angles of one RopeSpec for every position of the context, at a fixed address. It is filled as
// far as positions have been used.
class RopeTable {
 public:
  RopeTable(RopeSpec spec, int context)
      : spec_(std::move(spec)),
        context_(context),
        device_(size_t(context) * size_t(spec_.dim) * sizeof(float), "rotary angles") {}

  const RopeSpec& spec() const { return spec_; }
  const float* data() const { return device_.as<float>(); }
  uint64_t bytes() const { return device_.size(); }
  void fill_to(int64_t positions, const CudaStream& stream) {
    if (positions <= filled_) return;
    const int64_t end = std::min<int64_t>(context_, std::max(2 * filled_, positions + 255));
    std::vector<float> fresh;
    spec_.append(fresh, filled_, end);
    stream.wait();  // a copy may still be reading the pinned buffer
    pinned_ = {};
    pinned_ = PinnedBytes(fresh.size() * sizeof(float), "rotary angles");
    std::copy(fresh.begin(), fresh.end(), pinned_.as<float>());
    stream.copy(device_.as<float>() + filled_ * spec_.dim, pinned_.data(), pinned_.size(),
                cudaMemcpyHostToDevice);
    filled_ = end;
  }

 private:
  RopeSpec spec_;
  int context_;
  int64_t filled_ = 0;
  DeviceBytes device_;
  PinnedBytes pinned_;
};

}  // namespace chaski
