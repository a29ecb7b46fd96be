#include "engine/loadtest/load_report.h"

#include <algorithm>
#include <numeric>

namespace chaski {

namespace {

constexpr size_t kPercentOfGaps = 99;  // that a good request keeps within the limit

}  // namespace

std::vector<double> gaps_of(const LoadAnswer& answer) {
  std::vector<double> gaps;
  for (size_t i = 1; i < answer.times.size(); ++i)
    gaps.push_back(answer.times[i] - answer.times[i - 1]);
  return gaps;
}

double percentile(std::span<const double> sorted, size_t percent) {
  const size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<size_t>(rank, 1) - 1];
}

Distribution distribution_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {values.size(),          percentile(values, 50),      percentile(values, 90),
          percentile(values, 99), sum / double(values.size()), values.back()};
}

bool is_good(const LoadRecord& record, const LoadLimits& limits) {
  if (!record.answer.whole()) return false;
  if (limits.first > 0 && record.first() > limits.first) return false;
  std::vector<double> gaps = gaps_of(record.answer);
  if (limits.between <= 0 || gaps.empty()) return true;
  std::sort(gaps.begin(), gaps.end());
  return percentile(gaps, kPercentOfGaps) <= limits.between;
}

LoadReport report_of(const LoadRun& run, const LoadLimits& limits) {
  LoadReport report;
  report.seconds = run.seconds;
  std::vector<double> first, between, whole, late, prompts, answers;
  size_t events = 0;
  for (const LoadRecord& record : run.records) {
    ++report.requests;
    late.push_back(record.sent - record.scheduled);
    const LoadAnswer& answer = record.answer;
    if (!answer.whole()) {
      LoadErrors& errors = report.errors[answer.problem];
      if (errors.count++ == 0) errors.example = answer.detail;
      continue;
    }
    ++report.answered;
    report.good += is_good(record, limits);
    first.push_back(record.first());
    whole.push_back(record.end - record.scheduled);
    const std::vector<double> gaps = gaps_of(answer);
    between.insert(between.end(), gaps.begin(), gaps.end());
    events += answer.times.size();
    answers.push_back(answer.tokens());
    report.answer_total += answer.tokens();
    report.counted &= answer.answer_tokens >= 0;
    if (answer.prompt_tokens >= 0) {
      prompts.push_back(answer.prompt_tokens);
      report.prompt_total += answer.prompt_tokens;
      report.cached_total += std::max(answer.cached_tokens, 0);
    }
  }
  report.first = distribution_of(std::move(first));
  report.between = distribution_of(std::move(between));
  report.whole = distribution_of(std::move(whole));
  report.late = distribution_of(std::move(late));
  report.prompt_tokens = distribution_of(std::move(prompts));
  report.answer_tokens = distribution_of(std::move(answers));
  if (events > 0) report.tokens_an_event = double(report.answer_total) / double(events);
  return report;
}

}  // namespace chaski
