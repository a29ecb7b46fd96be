// What the server counts, in Prometheus' text format (version 0.0.4). Thread-safe.
#pragma once
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "engine/requests/disk_cache.h"
#include "main/serve/models.h"

namespace chaski {

// How many values are at most as large as each bound.
struct Histogram {
  static constexpr std::array<double, 12> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                     0.5,   1,    2.5,   5,    10,  30};
  std::array<uint64_t, kBounds.size() + 1> counts{};
  double sum = 0;
  void add(double value);
  Histogram& operator+=(const Histogram& other);
};

// Seconds of an answer until its first token, and between its tokens.
struct TokenTimes {
  Histogram first, between;
};

// Of --cache.
struct CacheFigures {
  DiskCache::Facts files;
  BoundedFolder::Facts folder;
};

// The figures of a moment that others count.
struct Moment {
  Inbox::Facts facts;
  int running = 0, waiting = 0;  // requests: with a thread, and in the queue
  std::vector<Models::Figures> models = {};
  std::optional<CacheFigures> cache = {};  // with --cache
};

class Metrics {
 public:
  void add_request(int status);  // 0: the client left before the response
  // The times of a stored answer do not count.
  void add_answer(const GenerateResult& result, const TokenTimes& times);
  std::string text(const Moment& moment) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, uint64_t> requests_;  // by status
  Histogram first_token_, between_tokens_;
  uint64_t gone_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0, tokens_ = 0;
  uint64_t drafts_ = 0, drafted_ = 0, accepted_ = 0, longest_ = 0;  // longest: tokens of a sequence
  double prompt_seconds_ = 0, decode_seconds_ = 0;
};

}  // namespace chaski
