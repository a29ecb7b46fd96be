// The statistics of a load test.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/loadtest/load.h"

namespace chaski {

// Percentiles by nearest rank: p90 is the smallest value that 90% of the values do not exceed. All
// are 0 if there are no values.
struct Distribution {
  size_t count = 0;
  double p50 = 0, p90 = 0, p99 = 0, mean = 0, most = 0;
};
Distribution distribution_of(std::vector<double> values);
double percentile(std::span<const double> sorted, size_t percent);  // of at least one value

// The times between the parts of an answer, in seconds.
std::vector<double> gaps_of(const LoadAnswer& answer);

struct LoadLimits {
  double first = 0, between = 0;  // seconds; 0: no limit
  bool any() const { return first > 0 || between > 0; }
};

struct LoadErrors {
  int count = 0;
  std::string example;  // the words of the first one
};

struct LoadReport {
  int requests = 0, answered = 0, good = 0;
  double seconds = 0;
  // In seconds, of the requests that were answered. `first` and `whole` begin at the scheduled
  // time. `between` has the gaps between the events with text of one answer.
  Distribution first, between, whole;
  Distribution late;  // sent minus scheduled, of all requests
  Distribution prompt_tokens,
      answer_tokens;           // of a request; prompt_tokens only if the server counts
  double tokens_an_event = 0;  // a mean; if it is 1, `between` is the time between tokens
  bool counted = true;         // the server counted the tokens of every answer
  int64_t prompt_total = 0, cached_total = 0, answer_total = 0;
  std::map<std::string, LoadErrors> errors;  // by kind

  double a_second(double n) const { return seconds > 0 ? n / seconds : 0; }
};

// Whether the first token and 99% of the gaps of an answered request are within the limits.
bool is_good(const LoadRecord& record, const LoadLimits& limits);
LoadReport report_of(const LoadRun& run, const LoadLimits& limits);

}  // namespace chaski
