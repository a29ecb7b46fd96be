// The inside of Engine, shared with Session: private to engine/.
#pragma once
#include <map>

#include "engine/engine.h"
#include "engine/kv_pool.h"
#include "ggml-like-tensor/executor.h"
#include "models/architecture.h"

namespace chaski {

// Tokens of a prompt that go through the model together: enough for the weights to be read seldom, few enough for the activations
// to stay in L2 (256 tokens x 2048 channels are 0.8 MB quantized).
constexpr int kMaxBatch = 256;

struct EngineImpl {
  std::shared_ptr<const Weights> weights;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  const Backend* backend = nullptr;
  int context = 0;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<Executor> executor;

  // What passes do, summed while it is not null.
  struct OpProfile {
    double seconds = 0;
    Cost cost;
    int calls = 0;
  };
  struct Profile {
    std::map<std::string, OpProfile> ops;
    int passes = 0;
    size_t steps = 0, barriers = 0;
  };
  Profile* profile = nullptr;

  // Runs `batch` and returns the logits (outputs, vocab), valid until the next run.
  const float* forward();
  Batch batch;

 private:
  void add_to_profile(const Plan& plan, const std::vector<double>& seconds);
  Plan& plan_for(int64_t tokens, int64_t outputs);
  void extend_ropes(const Graph& graph);
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Plan>> plans_;
  std::vector<std::vector<float>> ropes_;
};

}  // namespace chaski
