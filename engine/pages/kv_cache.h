// The paged states of all sequences of an engine: keys and values, and recurrent states. Here are
// the numbers of the pages. The bytes are in the stages (engine/passes/stage.h), each of which
// stores the states of its own layers under the same page numbers.
#pragma once
#include <optional>
#include <vector>

#include "engine/pages/prefix_index.h"
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

struct KvCache {
  StateLayout states;         // of all layers, without addresses
  std::vector<KvPool> pools;  // by pool of `states`
  // Empty for models without states, or with input rows (the tokens alone do not determine the
  // pages).
  std::optional<PrefixIndex> prefixes;
};

}  // namespace chaski
