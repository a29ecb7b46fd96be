#include "engine/session/session_room.h"

#include <algorithm>
#include <bit>

#include "engine/passes/placement.h"
#include "engine/session/memory_need.h"

namespace chaski {

namespace {

// With little memory the context changes from start to start, and the files of a prompt cache
// belong to one context. So few lengths are used: 2^n and 3 * 2^n.
int rounded_down(int context) {
  const int step = int(std::bit_floor(unsigned(context))) / 2;
  return step > 0 ? context / step * step : context;
}

}  // namespace

std::optional<SessionRoom> session_room(const ModelSource& source, const EngineOptions& o,
                                        uint64_t have) {
  ShapedModel shaped(source);
  EngineOptions quiet = o;
  quiet.notice = {};
  const Placement where = settle(*shaped, quiet, source.path);
  if (o.link || where.device()) return std::nullopt;
  const int threads = thread_count(o);
  const Footprint need(*shaped, where.cpu_layers(), o.kv, threads);
  // The tokenizer and the server take a part until the model is open.
  const uint64_t safe = prudent(have - have / 16, threads),
                 left = safe - std::min(safe, need.weights());
  SessionRoom room{.context = where.context, .own = where.context};
  if (o.context == 0) {
    room.context = need.longest_context(left, room.own);
    if (room.context < std::min(room.own, kLeastInMemory))
      room.context = need.longest_context(safe / 2, std::min(room.own, kDefaultPositions));
    if (room.context < room.own) room.context = rounded_down(room.context);
    if (room.context == 0) return std::nullopt;
  }
  const uint64_t activations = need.activations(room.context);
  room.bytes = std::max(need.states(room.context), left - std::min(left, activations));
  return room;
}

}  // namespace chaski
