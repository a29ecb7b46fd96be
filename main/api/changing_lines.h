// Lines of a system message that change from request to request and would make the prefix cache
// useless for everything after them.
#pragma once
#include <string>
#include <vector>

namespace chaski {

struct SteadySystem {
  std::string text;                // the system message without the lines
  std::string dates;               // the lines that were taken out for the first question
  std::vector<std::string> notes;  // a line for each line that was left out or moved
};

// Leaves out billing lines ("x-anthropic-billing-header: ..."), which coding agents write for the
// service they were made for and which have another value in each request. With `move_dates` also
// takes out the lines that hold today's date or time, such as "Today's date: 2026-11-25".
SteadySystem steady_system(const std::string& system, bool move_dates);

}  // namespace chaski
