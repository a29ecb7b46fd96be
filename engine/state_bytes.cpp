#include "engine/state_bytes.h"

#include "engine/cpu_passes.h"
#include "engine/page_table.h"

namespace chaski {

StateBytes state_bytes(const StateLayout& states) {
  StateBytes sum;
  for (const StateLayout::Pool& p : states.pools)
    if (p.recurrent)
      sum.recurrent += p.page_bytes;
    else if (p.window > 0)
      sum.windows += p.page_bytes / kPage * uint64_t(p.window + kGoBack);
    else
      sum.per_1024 += p.page_bytes / kPage * 1024;
  return sum;
}

std::optional<StateBytes> state_bytes(const ModelSource& source, Format kv) {
  // Vectors may decide about a graph; of matrices the shapes are enough.
  alignas(64) static std::byte nowhere[64];
  Weights shapes;
  shapes.path = source.path, shapes.meta = source.meta;
  std::vector<std::vector<std::byte>> vectors;
  try {
    for (const TensorSource& t : source.tensors) {
      std::byte* data = nowhere;
      if (!t.info.tiled()) t.read(0, 1, data = vectors.emplace_back(t.info.bytes()).data());
      shapes.tensors.push_back({t.info, data});
    }
    const std::unique_ptr<Model> model = bind_model(shapes);
    Batch one;
    one.tokens.resize(1), one.outputs.resize(1);
    return state_bytes(StateLayout(cpu_graph(*model, int(model->n_layers), one).states, kv, false));
  } catch (const Error&) {  // whoever runs it is told
    return std::nullopt;
  }
}

}  // namespace chaski
