// Engines that several ranks compute together. Rank 0 opens an engine on all ranks and uses it as
// any other one; its passes tell the other ranks what to compute (engine/passes/rank_stage.h).
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "engine/passes/link.h"
#include "engine/session/engine.h"

namespace chaski {

// What all ranks open: a model or, if there is a `shape`, random weights of this shape.
struct RankOpening {
  EngineOptions options;
  std::optional<ShapeOptions> shape = std::nullopt;
};
using OpenRank = std::function<std::shared_ptr<Engine>(const RankOpening&)>;
std::shared_ptr<Engine> open_rank(const RankOpening& opening);

// On rank 0 of options.link. Throws what `open` throws, and the error of another rank after the
// name of its host. Throws Error(usage) if another rank has another model.
std::shared_ptr<Engine> open_on_all(RankOpening opening, const OpenRank& open = open_rank);
// On the other ranks: opens engines and computes passes until rank 0 ends. Throws Error(io) if
// a rank is lost during a pass.
void follow(const std::shared_ptr<Link>& link, const OpenRank& open = open_rank);
// On rank 0, after its engines are destroyed: the other ranks return from follow(). Throws
// Error(io) if one does not.
void end_followers(Link& link);

}  // namespace chaski
