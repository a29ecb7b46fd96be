// How much memory the sessions of a server may take, so that the weights stay in memory too.
#pragma once
#include <optional>

#include "engine/session/engine.h"

namespace chaski {

struct SessionRoom {
  int context = 0;     // of a session: that of --ctx, or the longest that fits
  int own = 0;         // of the model, or of --ctx
  uint64_t bytes = 0;  // of keys, values and recurrent states of all sessions together
};
// `have`: bytes of free memory before the model is opened. If it does not hold the weights and a
// context of kLeastInMemory, the weights are read from the file for every pass anyway: then the
// context is the longest that fits into half of it, at most kDefaultPositions. Returns nothing if
// layers are on a device or on other machines, or if not even a page fits. Throws what bind_model()
// and settle() throw.
std::optional<SessionRoom> session_room(const ModelSource& source, const EngineOptions& options,
                                        uint64_t have);
constexpr int kLeastInMemory = 1024;

}  // namespace chaski
