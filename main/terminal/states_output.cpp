#include "main/terminal/states_output.h"

#include <fmt/format.h>

namespace chaski {

std::string states_line(const KvStates& s) {
  std::string line = fmt::format(
      "the states of a sequence take, with --kv {}, {} bytes per 1024 tokens of context", s.kv,
      s.bytes.per_1024);
  if (s.bytes.windows > 0) line += fmt::format(", at most {} bytes in windows", s.bytes.windows);
  if (s.bytes.recurrent > 0)
    line += fmt::format(", and {} bytes of recurrent states", s.bytes.recurrent);
  return line + "\n";
}

JsonValue states_json(const KvStates& s) {
  return {{"kv", s.kv},
          {"bytes_per_1024_tokens", s.bytes.per_1024},
          {"window_bytes", s.bytes.windows},
          {"recurrent_bytes", s.bytes.recurrent}};
}

}  // namespace chaski
