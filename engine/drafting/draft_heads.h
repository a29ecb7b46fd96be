// Medusa heads (models/heads/medusa.h): they compute draft tokens from a hidden state of the model
// that they were trained for, with its threads and kernels.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "engine/session/engine.h"
#include "ggml-like-tensor/batch.h"

namespace chaski {

class HeadsFolder;

// For heads of any kind. Throws Error(usage) for a target whose hidden states cannot be read,
// because layers are on a device.
void expect_hidden_rows(Engine& target, const std::string& folder);
// Throws Error(memory) if the tensors of the heads do not fit into memory.
void expect_memory_for_heads(const ModelSource& source);

class DraftHeads {
 public:
  // Throws Error(bad_file | io) for a folder that is damaged or has another hidden size or
  // vocabulary, and what expect_hidden_rows() and expect_memory_for_heads() throw.
  DraftHeads(const HeadsFolder& folder, std::shared_ptr<Engine> target);
  ~DraftHeads();

  Engine& target() const { return *target_; }
  int count() const;
  // From the hidden state that token t is drawn from, the logits of token t + 1 + head. They are
  // valid until the next pass of the target. Empty if `stop` was set meanwhile. Throws
  // Error(non_finite).
  std::span<const float> logits(int head, std::span<const float> hidden,
                                const std::atomic<bool>* stop = nullptr);

 private:
  struct Parts;
  const std::string folder_;
  const std::shared_ptr<Engine> target_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace chaski
