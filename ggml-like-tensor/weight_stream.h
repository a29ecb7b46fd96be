// The weights of a mapped model that is larger than memory and has no experts. Every pass reads all
// weights in the same order, so the system's cache, which evicts the pages that were read longest
// ago, would keep none until they are needed again. Here some weights stay in the system's cache.
// The others are streamed: threads read them past that cache into a ring, ahead of the steps that
// use them. During the last steps of a pass they read the weights of the first steps of the next.
// No bit of a result depends on this.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

// The weights that one step of a pass reads.
using StepWeights = std::vector<const Weight*>;
uint64_t bytes_of(const StepWeights& weights);

// The memory of the ring that streams weights of these steps.
uint64_t ring_bytes(std::span<const StepWeights> steps);
// Which steps' weights are streamed, so that those of the others and the ring take `bytes` of
// memory. `steps` are in the order of a pass, and the streamed ones are spread over it. Empty if
// all weights fit, or if the ring alone does not.
std::vector<bool> streamed_within(std::span<const StepWeights> steps, uint64_t bytes);

class WeightStream {
 public:
  // Streams the weights of the steps, in their order, and requests `kept` into the system's cache.
  // Null if the file cannot be opened again. The weights outlive this.
  static std::unique_ptr<WeightStream> make(std::shared_ptr<const Mapping> file,
                                            std::span<const StepWeights> steps,
                                            std::span<const Weight* const> kept);
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  // The address at which kernels read a weight: in the ring, or in the mapped file.
  std::byte* place_of(const Weight& weight) const;
  // The load that brings a weight: all streamed weights of its step; -1: it is not streamed.
  int load_of(const Weight& weight) const;
  // Waits until the weights of a load are in the ring. They stay until release(). One thread at a
  // time calls these.
  void acquire(int load);
  void release(int load);

  uint64_t bytes_a_pass() const { return bytes_a_pass_; }

 private:
  struct Piece {
    uint64_t from, to, needed;  // bytes of the file; those before `needed` must be there
    std::byte* memory;
  };
  struct Load {
    uint64_t at = 0, bytes = 0;  // its part of the ring
    uint64_t back = 0;           // loads from the last one before it that uses a part of this part
    std::vector<Piece> pieces;
    size_t unread = 0;
  };
  WeightStream(std::shared_ptr<const Mapping> file, int fd);
  bool can_begin() const;
  void reader();

  const std::shared_ptr<const Mapping> file_;
  const int fd_;
  std::byte* ring_ = nullptr;
  uint64_t ring_bytes_ = 0, bytes_a_pass_ = 0;
  std::vector<Load> loads_;
  struct Place {
    std::byte* data;
    int load;
  };
  std::unordered_map<const Weight*, Place> places_;

  // Loads have numbers that go on from pass to pass: number k is loads_[k % loads_.size()].
  std::mutex mutex_;  // guards all that follows, and `unread`
  std::condition_variable work_, ready_;
  uint64_t next_ = 0, used_ = 0;  // the number that is read next; those below used_ are released
  size_t next_piece_ = 0;
  int reading_ = 0;  // pieces
  bool leaps_ = false, stop_ = false;
  std::vector<std::thread> readers_;
};

}  // namespace chaski
