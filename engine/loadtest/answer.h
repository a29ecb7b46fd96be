// One streamed answer of an OpenAI-compatible server: when its parts arrived, its text, its token
// counts, and what went wrong.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/loadtest/event_stream.h"

namespace chaski {

struct LoadAnswer {
  std::vector<double> times;  // arrival of each event with text, thoughts or a tool call; seconds
  std::string text;           // without thoughts
  std::string finish;         // finish_reason; "" before it arrived
  bool done = false;          // "[DONE]" arrived
  int prompt_tokens = -1, cached_tokens = -1, answer_tokens = -1;  // -1: the server did not say
  std::string problem, detail;  // the kind of error, and the server's words; "" without one

  bool whole() const { return problem.empty() && (done || !finish.empty()); }
  int tokens() const { return answer_tokens >= 0 ? answer_tokens : int(times.size()); }
  void refuse(const std::string& kind, const std::string& words);  // keeps the first problem
};

class AnswerReader {
 public:
  // The bytes that arrived at `now`.
  void add(std::string_view bytes, double now);
  // The end of the body. An answer without an end or without text has a problem then.
  void end(double now);
  const LoadAnswer& answer() const { return answer_; }
  LoadAnswer& answer() { return answer_; }

 private:
  void take(const std::string& data, double now);

  EventStream stream_;
  LoadAnswer answer_;
};

}  // namespace chaski
