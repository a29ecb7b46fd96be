// JSON on stdout: one object, one line.
#pragma once
#include <nlohmann/json.hpp>

#include "main/output.h"

namespace chaski {

// Bytes that are not UTF-8, as a model may emit and a file may hold, become U+FFFD: JSON has no
// other place for them.
inline void put_json(const nlohmann::ordered_json& json) {
  put(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace chaski
