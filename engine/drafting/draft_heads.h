// Heads that guess ahead from a hidden row of the model that they were trained for
// (models/heads/medusa.h), run by its threads and kernels.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "engine/session/engine.h"
#include "ggml-like-tensor/batch.h"

namespace chaski {

// Of heads of any kind. Throws Error(usage) for a target that gives no hidden rows out, because
// layers are on a device.
void expect_hidden_rows(Engine& target, const std::string& folder);
// Throws Error(memory) where there is too little for the tensors of such a folder.
void expect_memory_for_heads(const ModelSource& source);

class DraftHeads {
 public:
  // Whether a folder holds heads, not a model.
  static bool are_at(const std::string& path);
  // Throws Error(bad_file | io) for a folder that is damaged, or of another hidden size or
  // vocabulary, and what the two above throw.
  DraftHeads(const std::string& folder, std::shared_ptr<Engine> target);
  ~DraftHeads();

  Engine& target() const { return *target_; }
  int count() const;
  // Of a head, behind the row that token t is drawn from: logits of token t + 1 + head, valid until
  // the next pass of the target. Nothing if `stop` was set meanwhile. Throws Error(non_finite).
  std::span<const float> logits(int head, std::span<const float> hidden,
                                const std::atomic<bool>* stop = nullptr);

 private:
  struct Parts;
  const std::string folder_;
  const std::shared_ptr<Engine> target_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace chaski
