// The state that a model keeps of a sequence, in bytes. `chaski plan` and `chaski bench` print it.
#pragma once
#include <cstdint>

#include "ggml-like-tensor/state_layout.h"

namespace chaski {

struct StateBytes {
  uint64_t per_1024 = 0;   // full attention, per 1024 tokens of context
  uint64_t windows = 0;    // sliding windows, at most
  uint64_t recurrent = 0;  // recurrent states, for any length
};
StateBytes state_bytes(const StateLayout& states);

}  // namespace chaski
