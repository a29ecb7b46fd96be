// What a model keeps of a sequence from token to token, in bytes: told before a model is run, and
// with its speed.
#pragma once
#include <cstdint>

#include "ggml-like-tensor/state_layout.h"

namespace chaski {

struct StateBytes {
  uint64_t per_1024 = 0;   // tokens of context, of layers that see all of them
  uint64_t windows = 0;    // at most, of layers that see the last tokens only
  uint64_t recurrent = 0;  // however long the sequence is
};
StateBytes state_bytes(const StateLayout& states);

}  // namespace chaski
