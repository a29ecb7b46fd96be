#include "engine/pages/state_bytes.h"

#include "engine/pages/page_table.h"

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

}  // namespace chaski
