// What of this machine decides how fast models run on it, and what of that could be better.
#pragma once
#include <string>
#include <vector>

namespace chaski {

struct Finding {
  std::string what, found;  // "huge pages", "always"
  std::string advice;       // what would make it better; empty: nothing has to
};

// In the order of a report. Takes about a second, because the memory is timed, with as many threads
// as a model would run on; its speed is kept (keep_bandwidth()).
std::vector<Finding> examine_machine();

}  // namespace chaski
