#include "engine/draft_eagle.h"

#include "engine/draft_heads.h"
#include "engine/engine_impl.h"
#include "models/import/eagle.h"

namespace chaski {

bool is_eagle(const std::string& path) { return holds_eagle(path); }

std::shared_ptr<Engine> open_eagle(const std::string& folder, std::shared_ptr<Engine> target,
                                   int sessions) {
  expect_hidden_rows(*target, folder);
  const EngineImpl& e = target->impl();
  const auto* decoder = dynamic_cast<const Decoder*>(e.model.get());
  if (!decoder)
    fail(Exit::usage, "--draft {}: {} has no head that others may ask, expected no EAGLE head",
         folder, target->path());
  auto eagle = std::make_unique<Eagle>(*decoder, e.hidden, target->path());
  const ModelSource source = import_eagle(folder, *eagle);
  expect_memory_for_heads(source);
  const auto weights = load(source, target->threads());
  for (const TensorSlot& slot : tensors_of(*eagle)) {
    *slot.weight = weights->find(slot.name);
    if (*slot.weight) eagle->weights.push_back({slot.role, *slot.weight});
  }
  eagle->bound(folder);
  return Engine::guessing_for(std::move(target), std::move(eagle), weights, sessions);
}

}  // namespace chaski
