#include "engine/session/session_room.h"

#include <algorithm>
#include <bit>

#include "engine/passes/placement.h"
#include "engine/session/memory_need.h"

namespace chaski {

namespace {

// With little memory the context changes from start to start, and the files of a prompt cache
// belong to one context. Therefore only the lengths 2^n and 3 * 2^n are used.
int rounded_down(int context) {
  const int step = int(std::bit_floor(unsigned(context))) / 2;
  return step > 0 ? context / step * step : context;
}

}  // namespace

std::optional<SessionRoom> session_room(const ModelSource& source, bool mapped,
                                        const EngineOptions& o, uint64_t have) {
  ShapedModel shaped(source);
  EngineOptions quiet = o;
  quiet.notice = {};
  const Placement where = settle(*shaped, quiet, source.path);
  if (o.link || where.device()) return std::nullopt;
  const int threads = thread_count(o);
  const Footprint need(*shaped, where.cpu_layers(), o.kv, threads);
  // The server takes a part until the model is open.
  const uint64_t safe = prudent(have - have / 16, threads), half = safe / 2,
                 beside_weights = safe - std::min(safe, need.weights());
  SessionRoom room{.context = where.context, .own = where.context, .weights = need.weights()};
  const auto longest = [&](uint64_t bytes, int most) {
    const int context = need.longest_context(bytes, most);
    return context < room.own ? rounded_down(context) : context;
  };
  const int least = o.context > 0 ? room.own : std::min(room.own, kLeastContext),
            with_weights = longest(beside_weights, room.own),
            without = mapped && with_weights < least
                          ? std::max(longest(half, least), longest(safe, std::min(least, kFewest)))
                          : 0;
  room.weights_stay = !mapped || (with_weights > 0 && with_weights >= without);
  if (o.context == 0) room.context = std::max({with_weights, without, std::min(room.own, kPage)});
  const uint64_t share = room.weights_stay ? beside_weights : half,
                 activations = need.activations(room.context);
  room.bytes = std::max(need.states(room.context), share - std::min(share, activations));
  return room;
}

}  // namespace chaski
