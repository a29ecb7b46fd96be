// What a model keeps of a sequence, as inspect and bench say it.
#pragma once
#include <string>

#include "engine/pages/state_bytes.h"
#include "main/terminal/json_output.h"

namespace chaski {

// With keys and values in `kv`, as --kv names it.
struct KvStates {
  std::string kv;
  StateBytes bytes;
};

std::string states_line(const KvStates& states);
JsonValue states_json(const KvStates& states);

}  // namespace chaski
