#include "engine/drafting/draft_eagle.h"

#include <algorithm>

#include "engine/drafting/draft_heads.h"
#include "engine/passes/pipeline.h"
#include "ggml-like-tensor/split.h"
#include "models/import/hf/eagle.h"

namespace chaski {

namespace {

std::unique_ptr<EagleHead> new_head(HeadsKind kind, const Decoder& target, const Engine& e) {
  const std::string& path = e.path();
  if (kind == HeadsKind::eagle3) return std::make_unique<Eagle3>(target, e.hidden_size(), path);
  if (kind == HeadsKind::next_layer)
    return std::make_unique<NextLayer>(target, e.hidden_size(), path);
  return std::make_unique<Eagle1>(target, e.hidden_size(), path);
}

// EAGLE-3: the target's own passes reduce the inputs of three layers to one row.
void give_rows(Engine& e, const Eagle3& eagle, const std::shared_ptr<const Weights>& weights,
               const std::string& folder) {
  const auto made = [weights, of = eagle.rows_of, layers = eagle.layers_read](Graph& g) {
    std::array<ValueId, 3> read{};
    std::ranges::transform(layers, read.begin(),
                           [&](int64_t layer) { return crossing_value(g, int(layer)); });
    if (std::ranges::count(read, kNone) > 0) return kNone;
    ValueId sum = g.matmul(read[0], *of[0].weight);
    for (size_t i = 1; i < read.size(); ++i) sum = g.add(sum, g.matmul(read[i], *of[i].weight));
    return sum;
  };
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  Graph graph = stage_graph(e.model(), all_layers(e.model()), one);
  if (made(graph) == kNone)
    fail(Exit::usage,
         "--draft {}: the target passes more than one row from layer to layer, expected no EAGLE-3 "
         "head",
         folder);
  e.pipeline().set_second_output(made, eagle.columns());
}

}  // namespace

bool has_next_layer(const std::string& path) {
  return HeadsFolder(path).kind() == HeadsKind::next_layer;
}

std::shared_ptr<Engine> open_eagle(const HeadsFolder& found, std::shared_ptr<Engine> target,
                                   int sessions) {
  const std::string& folder = found.path();
  expect_hidden_rows(*target, folder);
  Engine& e = *target;
  const auto* decoder = dynamic_cast<const Decoder*>(&e.model());
  if (!decoder)
    fail(Exit::usage,
         "--draft {}: the output head of {} cannot be used by an EAGLE head, expected another "
         "drafter",
         folder, target->path());
  std::unique_ptr<EagleHead> eagle = new_head(found.kind(), *decoder, e);
  const ModelSource source = import_eagle(found, *eagle);
  expect_tensors(*eagle, source);
  expect_memory_for_heads(source);
  const auto weights = load(source, target->threads());
  bind_tensors(*eagle, source.kind, *weights);
  auto engine = Engine::draft_head(target, std::move(eagle), weights, sessions);
  if (const auto* three = dynamic_cast<const Eagle3*>(&engine->model()))
    give_rows(e, *three, weights, folder);
  return engine;
}

}  // namespace chaski
