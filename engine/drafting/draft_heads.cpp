#include "engine/drafting/draft_heads.h"

#include <algorithm>
#include <cmath>

#include "engine/passes/pipeline.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/plan.h"
#include "models/import/hf/medusa.h"

namespace chaski {

// There is a plan for each head, so that a draft token costs one head and not all.
struct DraftHeads::Parts {
  MedusaHeads heads;
  std::shared_ptr<const Weights> weights;
  Batch batch;  // one row
  PassContext where;
  std::vector<std::unique_ptr<Plan>> plans;
};

void expect_hidden_rows(Engine& target, const std::string& folder) {
  if (target.device() != "cpu")
    fail(Exit::usage,
         "--draft {}: heads read hidden states, which stay on {}, expected a model, ngram or none, "
         "or --device cpu",
         folder, target.device());
  CpuStage* const stage = target.pipeline().whole_on_cpu();
  if (!stage)
    fail(Exit::usage, "--draft {}: heads need all layers in one stage on the CPU", folder);
  if (stage->has_second_output())
    fail(Exit::usage, "--draft {}: {} has an EAGLE-3 head already, expected only one set of heads",
         folder, target.path());
  if (target.hidden_size() == 0)
    fail(Exit::usage,
         "--draft {} is a folder of draft heads, but {} gives no hidden state for them: use "
         "--draft MODEL, ngram or none",
         folder, target.path());
}

void expect_memory_for_heads(const ModelSource& source) {
  uint64_t need = 0;
  for (const TensorSource& t : source.tensors) need += t.info.bytes();
  if (const auto have = available_memory(); have && need > *have)
    fail(Exit::memory, "{}: the heads need {:.3g} GB of memory, {:.3g} GB are available",
         source.path, double(need) / 1e9, double(*have) / 1e9);
}

DraftHeads::DraftHeads(const HeadsFolder& folder, std::shared_ptr<Engine> target)
    : folder_(folder.path()), target_(std::move(target)), parts_(std::make_unique<Parts>()) {
  expect_hidden_rows(*target_, folder_);
  Parts& p = *parts_;
  p.heads.dim = target_->hidden_size(), p.heads.vocab = target_->vocab_size();
  const ModelSource source = import_medusa(folder, p.heads, target_->path());
  expect_memory_for_heads(source);
  p.weights = load(source, target_->threads());
  p.heads.bind(*p.weights);
  p.batch.tokens.resize(1), p.batch.outputs.resize(1);
  for (int i = 0; i < count(); ++i) {
    Graph graph(p.batch);
    p.heads.build(graph, i);
    p.plans.push_back(std::make_unique<Plan>(std::move(graph), cpu_backend(), p.batch, p.where));
  }
}

DraftHeads::~DraftHeads() = default;

int DraftHeads::count() const { return int(parts_->heads.heads); }

std::span<const float> DraftHeads::logits(int head, std::span<const float> hidden,
                                          const std::atomic<bool>* stop) {
  ENSURE(int64_t(hidden.size()) == parts_->heads.dim, "heads read a hidden state of their model");
  Plan& plan = *parts_->plans[size_t(head)];
  Executor& executor = target_->pipeline().whole_on_cpu()->executor();
  executor.make_room(plan);
  std::copy(hidden.begin(), hidden.end(), plan.input());
  if (!executor.run(plan, stop)) return {};
  const std::span<const float> row(plan.result(), size_t(parts_->heads.vocab));
  if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); }))
    fail(Exit::non_finite, "{}: the logits of head {} are not finite: the file is damaged", folder_,
         head);
  const Engine& e = *target_;
  return e.has_tokenizer() ? row.first(size_t(e.tokenizer().size())) : row;
}

}  // namespace chaski
