// A stage that several ranks compute together: each has its part of every layer
// (ggml-like-tensor/rank_share.h), and the states of its key heads. Rank 0 sends the batch of each
// pass to the others. The results are on rank 0.
#pragma once
#include <string>

#include "engine/passes/cpu_stage.h"
#include "engine/passes/link.h"

namespace chaski {

class Pipeline;

class RankStage : public CpuStage, private Exchange {
 public:
  // As CpuStage. `engine`: the number of the engine on all ranks. `share`: of this rank.
  RankStage(const Model& model, Layers layers, const Batch& batch, Format kv,
            std::shared_ptr<Crew> crew, int threads, bool threads_fixed, std::shared_ptr<Link> link,
            int engine, std::unique_ptr<RankShare> share);
  ~RankStage() override;

  std::string device() const override;
  // Nothing outside of passes can read the states of other ranks.
  const StateLayout* host_states() const override { return nullptr; }
  // Ranks other than 0 wait until reserve_as_first(): rank 0 decides how many pages there are.
  void reserve(std::span<const int64_t> pages) override;
  void reserve_as_first(std::span<const int64_t> pages) { CpuStage::reserve(pages); }
  void copy_page(int pool, int32_t from, int32_t to) override;
  bool run(const PassWork& work, std::span<const float> input) override;

  // On rank 0, when all ranks have the engine: they close it when this is destroyed.
  void set_open() { open_ = true; }
  // On a rank other than 0: does what a message of rank 0 says, with the pipeline of this stage.
  void follow(const std::string& message, Pipeline& pipeline);

 private:
  bool complete(const Step& step) override;
  bool complete(std::span<const Step::Gathered> gathers);
  std::string describe(const PassWork& work);

  const std::shared_ptr<Link> link_;
  const int engine_;
  bool open_ = false;
  std::unique_ptr<RankShare> own_share_;
  const std::atomic<bool>* stop_ = nullptr;
  // What the other ranks have of the page tables of the last batch, by pool and sequence.
  std::vector<std::vector<std::vector<int32_t>>> tables_;
  // Memory of a gather.
  std::vector<std::byte> sent_, received_;
  std::vector<size_t> sizes_;
  uint32_t messages_ = 0;  // so far in the pass
};

// The bytes that a rank sends for a value, and before all values of a gather.
size_t part_bytes(const Step::Gathered& value, int rank);
constexpr size_t kPartHeaderBytes = 8;

// The messages of rank 0. Each begins with its kind and the number of an engine.
enum class RankMessage : uint8_t { open, run, copy_page, close, end };

}  // namespace chaski
