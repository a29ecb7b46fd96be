#include "main/terminal/states_output.h"

#include <fmt/format.h>

namespace chaski {

std::string states_line(const KvStates& s) {
  std::string line = fmt::format("a sequence keeps, in {}, {} bytes per 1024 tokens of context",
                                 s.kv, s.bytes.per_1024);
  if (s.bytes.windows > 0) line += fmt::format(", in windows at most {} bytes", s.bytes.windows);
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
