#include "engine/drafting/draft_eagle.h"

#include <algorithm>
#include <filesystem>

#include "engine/drafting/draft_heads.h"
#include "engine/passes/pipeline.h"
#include "engine/shelf/model_file.h"
#include "ggml-like-tensor/split.h"
#include "models/import/hf/eagle.h"
#include "models/import/import.h"

namespace chaski {

namespace {

bool is_file(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none);
}

std::unique_ptr<EagleHead> new_head(const HeadsFolder& found, const Decoder& target,
                                    const Engine& e) {
  const HeadsKind kind = found.kind();
  const std::string& path = e.path();
  if (kind == HeadsKind::eagle3) return std::make_unique<Eagle3>(target, e.hidden_size(), path);
  if (kind == HeadsKind::next_layer)
    return std::make_unique<NextLayer>(target, e.hidden_size(), path);
  if (kind == HeadsKind::delta_next || is_file(found.path()))
    return std::make_unique<DeltaNext>(target, e.hidden_size(), path);
  return std::make_unique<Eagle1>(target, e.hidden_size(), path);
}

// Without those that predict further tokens.
int64_t layers_of(const Metadata& meta) {
  return meta.integer("model.layer_count", meta.integer("model.block_count"));
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

bool has_next_layer(const HeadsFolder& found, const std::function<Metadata()>& target) {
  if (found.kind() == HeadsKind::next_layer) return true;
  const bool folder = found.kind() == HeadsKind::delta_next;
  if (folder && !found.has_model()) return true;
  if (!folder && !(is_file(found.path()) && gguf_has_next(found.path()))) return false;
  try {
    const Metadata own = open_model(found.path()).source.meta, its = target();
    return own.str("general.architecture") == its.str("general.architecture") &&
           own.integer("model.embedding_length") == its.integer("model.embedding_length") &&
           layers_of(own) == layers_of(its);
  } catch (const Error&) {
    return false;  // it is opened as a model, which reports what is wrong with it
  }
}

bool has_next_layer(const std::string& path, const std::function<Metadata()>& target) {
  return has_next_layer(HeadsFolder(path), target);
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
  std::unique_ptr<EagleHead> eagle = new_head(found, *decoder, e);
  const ModelSource source = is_file(found.path())
                                 ? import_gguf_next(found.path(), dynamic_cast<DeltaNext&>(*eagle))
                                 : import_eagle(found, *eagle);
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
