#include "engine/loadtest/workload.h"

#include <cmath>
#include <iterator>
#include <sstream>

#include "engine/text/ordered_json.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr const char* kWords[] = {
    "the",   "of",     "and",     "to",    "in",    "is",    "that",  "it",     "was",    "for",
    "on",    "are",    "as",      "with",  "they",  "be",    "at",    "one",    "have",   "this",
    "from",  "or",     "had",     "by",    "hot",   "but",   "some",  "what",   "there",  "we",
    "can",   "out",    "other",   "were",  "all",   "your",  "when",  "up",     "use",    "how",
    "said",  "an",     "each",    "old",   "which", "do",    "their", "time",   "if",     "will",
    "way",   "about",  "many",    "then",  "them",  "would", "write", "like",   "so",     "these",
    "big",   "long",   "make",    "thing", "see",   "key",   "two",   "has",    "look",   "more",
    "day",   "could",  "go",      "come",  "did",   "my",    "sound", "no",     "most",   "number",
    "map",   "over",   "know",    "water", "than",  "call",  "first", "people", "may",    "down",
    "side",  "been",   "now",     "find",  "head",  "road",  "own",   "page",   "should", "country",
    "found", "answer", "school",  "grow",  "study", "still", "learn", "plant",  "cover",  "food",
    "sun",   "four",   "between", "state", "keep",  "eye",   "never", "last",   "let",    "thought",
    "city",  "tree",   "cross",   "farm",  "hard",  "start", "might", "story",  "saw",    "far"};

// SplitMix64 (Steele, Lea and Flood, 2014): its streams do not depend on the standard library.
uint64_t next_number(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

int drawn(const TokenRange& range, uint64_t& state) {
  return range.least + int(next_number(state) % uint64_t(range.most - range.least + 1));
}

std::string words(int n, uint64_t& state) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    if (i > 0) text += ' ';
    text += kWords[next_number(state) % std::size(kWords)];
  }
  return text;
}

std::string message(const char* role, const std::string& text) {
  return written({{"role", role}, {"content", text}});
}

}  // namespace

Workload::Workload(const WorkloadOptions& options, const std::string& file, const std::string& name)
    : options_(options) {
  uint64_t state = options.seed ^ 0x707265666978;  // the prefix is no prompt of the same seed
  if (options.kind == WorkloadOptions::Kind::prefix) prefix_ = words(options.prefix_tokens, state);
  std::istringstream in(file);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (!line.starts_with('{')) {
      lines_.push_back(turn_of(line, 0));
      continue;
    }
    const OrderedJson object = maybe_json(line);
    const auto refuse = [&](const std::string& why) {
      fail(Exit::usage, "{}, line {}: {}", name, number, why);
    };
    if (!object.is_object())
      refuse(R"(is not JSON, expected text, {"prompt": "..."} or {"messages": [...]})");
    const auto prompt = object.find("prompt"), messages = object.find("messages");
    if (prompt != object.end() && prompt->is_string()) {
      lines_.push_back(turn_of(prompt->get<std::string>(), 0));
    } else if (messages != object.end() && messages->is_array() && !messages->empty()) {
      if (!options.chat) refuse("has messages, expected a prompt for /v1/completions");
      LoadTurn turn;
      for (const OrderedJson& one : *messages) turn.messages.push_back(written(one));
      lines_.push_back(std::move(turn));
    } else {
      refuse(R"(has neither "prompt" (a text) nor "messages" (a list))");
    }
  }
  if (lines_.empty() && (number > 0 || !name.empty()))
    fail(Exit::usage, "{}: has no prompt, expected one a line", name);
}

LoadTurn Workload::turn_of(const std::string& text, int answer_tokens) const {
  return {{message("user", text)}, text, answer_tokens};
}

std::vector<LoadTurn> Workload::conversation(uint64_t number) const {
  uint64_t state = options_.seed * 0x9e3779b97f4a7c15 + number;
  const bool chat = options_.kind == WorkloadOptions::Kind::chat;
  std::vector<LoadTurn> turns;
  for (uint64_t i = 0, n = chat ? uint64_t(options_.turns) : 1; i < n; ++i) {
    const int prompt = drawn(options_.prompt, state), answer = drawn(options_.answer, state);
    if (lines_.empty())
      turns.push_back(turn_of(words(prompt, state), answer));
    else
      turns.push_back(lines_[(number * n + i) % lines_.size()]);
    turns.back().answer_tokens = answer;
  }
  if (!prefix_.empty()) {
    LoadTurn& first = turns[0];
    first.messages.insert(first.messages.begin(), message("system", prefix_));
    first.text = prefix_ + "\n\n" + first.text;
  }
  return turns;
}

double PoissonArrivals::next() {
  const double uniform = double(next_number(state_) >> 11) * 0x1p-53;  // in [0, 1)
  return at_ -= std::log1p(-uniform) / rate_;
}

}  // namespace chaski
