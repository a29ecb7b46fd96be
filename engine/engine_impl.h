// The inside of Engine, shared with Session: private to engine/.
#pragma once
#include "engine/cpu_passes.h"
#include "engine/device_passes.h"
#include "engine/engine.h"
#include "engine/kv_pool.h"

namespace chaski {

struct EngineImpl {
  std::shared_ptr<const Weights> weights;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  int context = 0, max_batch = 0;
  Format kv = Format::f16;
  StateLayout states;  // of all layers, wherever they are

  Batch batch;  // of the next pass
  // By pool of states; pages of the first layers. The last layers' are the device's, if there is
  // one.
  std::vector<std::unique_ptr<HostPages>> pages;
  std::unique_ptr<CpuPasses> cpu;
  std::unique_ptr<DevicePasses> device;
  std::vector<KvPool> pools;

  Profile* profile = nullptr;  // what passes do is added to it, if it is there

  int cpu_layers() const { return device ? device->first_layer() : int(model->n_layers); }
  // One pass over `batch`; with `draw`, which needs a device, tokens are drawn where the logits
  // are. A device may still be at it when this returns.
  void run(const CudaDraw* draw = nullptr);
  // Of the last run, valid until the next: logits (outputs, vocab), or a token for each output, -1
  // where a logit is not finite.
  const float* logits() { return device ? device->logits() : result_; }
  std::span<const int32_t> tokens() { return device->tokens(); }

 private:
  const float* result_ = nullptr;  // of the CPU
};

}  // namespace chaski
