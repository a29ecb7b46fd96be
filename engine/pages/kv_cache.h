// The paged states of all sequences of an engine: keys and values, and recurrent states. Here are
// the numbers of the pages. The bytes are in the stages (engine/passes/stage.h), each of which
// stores the states of its own layers under the same page numbers.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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

  // Call before pages are taken. Throws Error(memory) if need() bytes are more than the system can
  // give, because the kernel would then kill the process. Once memory is short, the pools reuse
  // idle pages first, and need() is called again. what() is the subject of the message.
  void expect_memory(const std::function<uint64_t()>& need,
                     const std::function<std::string()>& what);
  // Throws Error(memory) if there is no memory for the pages of a text of `cells` tokens, read in
  // passes of up to `pass`. All pages that have memory now count as available for it.
  void expect_memory_for(int cells, int pass, std::string_view what) const;
};

}  // namespace chaski
