// Reports what decides how fast models run on this machine, with advice (`chaski doctor`).
#pragma once
#include <string>
#include <vector>

namespace chaski {

struct Finding {
  std::string what, found;  // "huge pages", "always"
  std::string advice;       // how to improve it; empty: nothing to do
  bool absent = false;      // the machine does not have it; `found` says why
};

// In the order of the report. Takes about a second to measure the memory bandwidth, with the
// default number of threads, and stores it (keep_bandwidth()).
std::vector<Finding> examine_machine();

}  // namespace chaski
