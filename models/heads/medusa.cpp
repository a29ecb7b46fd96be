#include "models/heads/medusa.h"

#include <fmt/format.h>

namespace chaski {

void MedusaHeads::tensors(Slots& s) {
  heads_.resize(size_t(heads));
  for (int64_t i = 0; i < heads; ++i) {
    Head& head = heads_[size_t(i)];
    head.blocks.resize(size_t(blocks));
    s.layer(i, "");
    for (int64_t k = 0; k < blocks; ++k)
      s.add(head.blocks[size_t(k)], fmt::format("block.{}", k), dim, dim)
          .in_hf(fmt::format("{}.linear", k))
          .with(Bias::always);
    s.add(head.output, "output", vocab, dim).in_hf(fmt::format("{}", blocks)).as(Role::head);
  }
}

void MedusaHeads::bind(const Weights& weights) {
  Slots slots;
  tensors(slots);
  for (const TensorSlot& slot : slots.all()) *slot.weight = weights.find(slot.name);
}

void MedusaHeads::build(Graph& g, int head) const {
  const Head& h = heads_[size_t(head)];
  ValueId x = g.take_input(dim);
  for (const Linear& block : h.blocks) x = g.add(x, g.silu(g.matmul(x, *block.weight, block.bias)));
  g.set_result(g.matmul(x, *h.output.weight));
}

}  // namespace chaski
