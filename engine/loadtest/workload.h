// What a load test sends, and when: prompts and arrivals that depend on the seed alone.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace chaski {

struct TokenRange {
  int least = 0, most = 0;  // a length is drawn uniformly
};

// One request of a conversation.
struct LoadTurn {
  std::vector<std::string> messages;  // JSON objects that it adds to the conversation
  std::string text;                   // what it adds to the prompt of /v1/completions
  int answer_tokens = 0;              // the limit that the request asks for
};

struct WorkloadOptions {
  // single: each prompt is independent. prefix: all begin with the same text. chat: conversations
  // of several turns; each turn sends the earlier turns and answers again.
  enum class Kind { single, prefix, chat } kind = Kind::single;
  TokenRange prompt{200, 200}, answer{128, 128};
  int prefix_tokens = 2000, turns = 4;
  uint64_t seed = 1;
  bool chat = true;  // whether requests have messages (or else a prompt)
};

class Workload {
 public:
  // `file`: prompts, one a line, as text or as {"prompt": ...} or {"messages": [...]}; they are
  // sent in turn. Without lines, prompts are drawn from a list of common English words, which most
  // tokenizers read as one token each. Throws Error(usage) that names the line.
  Workload(const WorkloadOptions& options, const std::string& file, const std::string& name);

  // The turns of a conversation, counted from 0. The same for the same options.
  std::vector<LoadTurn> conversation(uint64_t number) const;

 private:
  LoadTurn turn_of(const std::string& text, int answer_tokens) const;

  WorkloadOptions options_;
  std::vector<LoadTurn> lines_;
  std::string prefix_;
};

// The times of a Poisson process: the gaps are exponential with the mean 1 / rate.
class PoissonArrivals {
 public:
  PoissonArrivals(double rate, uint64_t seed) : rate_(rate), state_(seed) {}
  double next();  // seconds after the start

 private:
  double rate_, at_ = 0;
  uint64_t state_;
};

}  // namespace chaski
