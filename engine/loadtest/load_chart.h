// The chart of a load test: an SVG file that needs no other file.
#pragma once
#include <string>

#include "engine/loadtest/load_report.h"

namespace chaski {

// Draws two distributions (time to first token, time between tokens) and the requests over time.
// `title` is the first line of the chart. Throws Error(io).
void write_load_chart(const std::string& path, const LoadRun& run, const LoadReport& report,
                      const LoadLimits& limits, const std::string& title);

}  // namespace chaski
