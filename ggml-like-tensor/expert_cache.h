// The experts of a mapped model that is larger than memory. Memory holds the experts that are used
// most, each in a slot. The others are read from the file when a router has chosen them: by
// threads, past the system's cache, into the slots of the experts that are used least. So the
// system's cache keeps the weights that every token reads, and memory never grows beyond the slots.
//
// The slots of a weight are its own. An expert's use is a sum over tokens that halves every
// kHalfLife tokens. A prompt may choose more experts than there are slots. Then an expert loses its
// slot to the next one as soon as all its rows are computed. No bit of a result depends on this.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/expert_facts.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

// How many tokens chose each expert of a weight, by the weight's name; older ones count less. A
// text for later runs.
using ExpertUses = std::map<std::string, std::vector<double>>;
std::string text_of_uses(const ExpertUses& uses);
ExpertUses uses_of(const std::string& text);  // skips lines that it does not understand

// The rows of `weight` are those of `experts` experts, one below the other.
struct ExpertWeight {
  const Weight* weight;
  int64_t experts;
};

// The bytes of memory that an executor of `threads` threads needs at least: each thread holds an
// expert of a weight, and two more can be read.
uint64_t least_bytes(std::span<const ExpertWeight> weights, int threads);
// The slots that each weight gets of `bytes` of memory; empty if these are fewer than
// least_bytes(). All weights get about the same part of their experts.
std::vector<int64_t> slots_within(std::span<const ExpertWeight> weights, uint64_t bytes,
                                  int threads);
// The expected part of the reads that find their expert in a slot. A token chooses `chosen_part` of
// the experts. Without uses of a weight, all its experts count the same.
double expected_hits(std::span<const ExpertWeight> weights, std::span<const int64_t> slots,
                     double chosen_part, const ExpertUses& uses);

class ExpertCache {
 public:
  // For weights of `file` and an executor of `threads` threads. Null if `bytes` are fewer than
  // least_bytes(), or if the file cannot be opened again. The weights outlive this.
  static std::unique_ptr<ExpertCache> make(std::shared_ptr<const Mapping> file,
                                           std::span<const ExpertWeight> weights, uint64_t bytes,
                                           int threads, const ExpertUses& uses);
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  // Null for a weight that is not in the cache. In a pass one step reads the weight from here;
  // other steps read it from the file (Plan::announce_experts).
  ExpertPlaces* places_of(const Weight& weight) const;

  // Whether an expert that was expected since the last call was not in memory.
  bool take_missing() { return missing_.exchange(false, std::memory_order_relaxed); }

  ExpertFacts facts() const;  // thread-safe
  ExpertUses uses() const;

 private:
  class Shelf;
  struct Job {
    Shelf* shelf;
    int slot, piece;
  };
  ExpertCache(std::shared_ptr<const Mapping> file, int fd);
  void push(const Job& job);
  void reader();
  bool fill_a_slot();

  const std::shared_ptr<const Mapping> file_;
  const int fd_;
  std::byte* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<Shelf>> shelves_;
  std::atomic<bool> missing_{false};
  std::unordered_map<const Weight*, Shelf*> by_weight_;

  mutable std::mutex mutex_;  // guards all that follows, and the shelves
  std::condition_variable work_;
  std::vector<Job> jobs_;  // a ring: a job for each piece that is not read
  size_t first_job_ = 0, n_jobs_ = 0;
  // Experts that were used in earlier runs, most used first. They are read while nothing else is.
  std::vector<std::pair<Shelf*, int64_t>> learned_;
  size_t next_learned_ = 0;
  ExpertFacts facts_;
  bool stop_ = false;
  std::vector<std::thread> readers_;
};

}  // namespace chaski
