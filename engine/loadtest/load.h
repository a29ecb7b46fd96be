// Sends requests to an OpenAI-compatible server and records when each part of an answer arrives.
// One thread drives all streams (libcurl's multi interface).
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "engine/loadtest/answer.h"
#include "engine/loadtest/workload.h"

namespace chaski {

struct LoadTarget {
  std::string url;       // of the endpoint
  bool chat = true;      // the endpoint takes messages, not a prompt
  std::string model;     // name in each request
  std::string key;       // API key; "": none
  std::string fields;    // a JSON object that is merged into each request; null removes a field
  double timeout = 600;  // seconds for a request
};

// The endpoint of a server: the URL may be its address, with or without /v1, or the endpoint's own.
// Throws Error(usage), also if an API key would be sent to another machine without encryption.
std::string endpoint_url(const std::string& url, bool chat, bool has_key);
// The first model that the server lists. Throws Error(io) if it lists none.
std::string first_model_of(const LoadTarget& target, const std::atomic<bool>* stop);

struct LoadOptions {
  double rate = 0;      // open loop: requests a second on average. 0: a closed loop
  int clients = 1;      // of a closed loop: each sends its next request when it has its answer
  int requests = 0;     // 0: no limit
  double duration = 0;  // seconds after which no request is scheduled; 0: no limit
  double pause = 0;     // seconds between an answer and the next turn of its conversation
  uint64_t seed = 1;
};

struct LoadRecord {
  int number = 0, turn = 0;  // counted from 0
  // Seconds after the start. Every latency is measured from `scheduled`: a request that is sent
  // late, because the client or the server is slow, counts its waiting time.
  double scheduled = 0, sent = 0, end = 0;
  int status = 0;  // of HTTP; 0: no answer
  LoadAnswer answer;

  double first() const { return answer.times.front() - scheduled; }
};

struct LoadRun {
  std::vector<LoadRecord> records;  // in the order of their ends
  double seconds = 0;               // from the start to the last end
};

// Calls `on_end` after each request. `stop` may be null; when it is set, the open requests are
// dropped and have no record. Throws Error(usage | io | memory), but not for a failed request.
LoadRun run_load(const LoadTarget& target, const Workload& workload, const LoadOptions& options,
                 const std::function<void(const LoadRecord&)>& on_end,
                 const std::atomic<bool>* stop);

}  // namespace chaski
