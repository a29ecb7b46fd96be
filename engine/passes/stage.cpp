#include "engine/passes/stage.h"

#include "ggml-like-tensor/fuse.h"
#include "ggml-like-tensor/split.h"

namespace chaski {

Graph stage_graph(const Model& model, Layers layers, const Batch& batch, Result what,
                  Network network) {
  Graph graph(batch, network);
  model.build(graph);
  graph.want(what);
  if (layers.end < model.n_layers) graph = split(std::move(graph), layers.end).first;
  return layers.first > 0 ? split(std::move(graph), layers.first).rest : graph;
}

StateLayout states_of(const Model& model, Layers layers, Format kv, RankShare* share) {
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  Graph graph = stage_graph(model, layers, one);
  if (share) fuse(graph), share->divide(graph);
  return StateLayout(graph.states, kv, false);
}

}  // namespace chaski
