// What an ExpertCache holds, and what it found and read.
#pragma once
#include <cstdint>

namespace chaski {

struct ExpertFacts {
  uint64_t bytes = 0, of = 0;  // memory of the slots; of all experts
  // Of passes with few tokens, such as decode steps. An expert of a weight counts once a pass.
  int64_t tokens = 0, wanted = 0, found = 0;
  uint64_t read = 0;      // bytes, for these passes
  uint64_t read_all = 0;  // bytes, also for prompts and before the first pass
};

}  // namespace chaski
