// The size of a model's states for a sequence, for inspect and bench.
#pragma once
#include <string>

#include "engine/pages/state_bytes.h"
#include "main/terminal/json_output.h"

namespace chaski {

// `kv`: the format of keys and values, as in --kv.
struct KvStates {
  std::string kv;
  StateBytes bytes;
};

std::string states_line(const KvStates& states);
JsonValue states_json(const KvStates& states);

}  // namespace chaski
