#include "engine/state_bytes.h"

#include "engine/memory_need.h"
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
  try {
    ShapedModel model(source);
    return state_bytes(states_of(*model, int((*model).n_layers), kv));
  } catch (const Error&) {  // whoever runs it is told
    return std::nullopt;
  }
}

}  // namespace chaski
