#include "engine/drafting/drafters.h"

#include <algorithm>

#include "ggml-like-tensor/base/error.h"
#include "models/import/hf/heads.h"

namespace chaski {

#define DRAFTER(kind) extern const DrafterKind kind;
#include "engine/drafting/drafters.list"
#undef DRAFTER

std::span<const DrafterKind* const> drafter_kinds() {
  static const DrafterKind* const kAll[] = {
#define DRAFTER(kind) &kind,
#include "engine/drafting/drafters.list"
#undef DRAFTER
  };
  return kAll;
}

NewDrafter open_drafter(const DraftRequest& request) {
  const HeadsFolder heads(request.name);
  const auto kinds = drafter_kinds();
  const auto kind = std::ranges::find_if(
      kinds, [&](const DrafterKind* candidate) { return candidate->takes(request, heads); });
  ENSURE(kind != kinds.end(), "the last kind of drafter takes every path");
  return (*kind)->open(request, heads);
}

}  // namespace chaski
