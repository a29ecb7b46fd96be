// The memory that the sessions of a server may take, and their context.
#pragma once
#include <optional>

#include "engine/session/engine.h"

namespace chaski {

struct SessionRoom {
  int context = 0;            // of a session: that of --ctx, or the longest that fits
  int own = 0;                // of the model, or of --ctx
  uint64_t bytes = 0;         // of keys, values and recurrent states of all sessions together
  uint64_t weights = 0;       // bytes
  bool weights_stay = false;  // in memory; else passes read them from the file
};
// `have`: bytes of free memory when the tokenizer is made and the weights are not read. `mapped`:
// the weights may stay in their file.
//
// The context is the longest that fits into the memory that the weights leave. If that is shorter
// than kLeastContext (placement.h) and the weights are mapped, half of the memory is tried too, up
// to that length, and all of it up to kFewest: passes then read weights from the file. The longest
// of them is taken, so more memory never gives a shorter context. expect_memory() accepts it. If
// not even kPage tokens fit, that many are taken, and expect_memory() says what is missing.
//
// Returns nothing if layers are on a device or on other machines. Throws what bind_model() and
// settle() throw.
std::optional<SessionRoom> session_room(const ModelSource& source, bool mapped,
                                        const EngineOptions& options, uint64_t have);
constexpr int kFewest = 512;  // tokens: a question and a short answer

}  // namespace chaski
