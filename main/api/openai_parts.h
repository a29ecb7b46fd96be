// Parts of OpenAI's interfaces that several endpoints and dialects share.
#pragma once
#include <chrono>
#include <optional>

#include "main/api/routes.h"

namespace chaski {

extern const Dialect kOpenAi;

// {"error": {"message", "type", "param", "code"}}
OrderedJson openai_error(const ApiError& error);
// "data: JSON" of server-sent events, and with the name of the event.
std::string sent_event(const OrderedJson& json);
std::string sent_event(const std::string& name, const OrderedJson& json);

// Messages of /v1/chat/completions, also with content in parts.
std::vector<ChatMessage> read_messages(const Field& messages);
// A text, or a list of parts of these types: {"type": "text", "text": ...}. Each part begins on a
// new line, as in llama-server and vLLM.
std::string read_content(const Field& content);
// An answer that a client sends back with its thought.
std::string with_thought(const std::string& thought, const std::string& content);
// "tools", "tool_choice" and "parallel_tool_calls" of an object.
void read_tools(const Field& fields, ChatRequest& request);
// If the tool choice of the request forces a call: refuses a schema of parameters that the grammar
// cannot follow, with its path in "tools". `tools`: OpenAI's list; `member`: where a tool of the
// request has its schema, if not as OpenAI's.
void expect_enforceable(const OrderedJson& tools, const ChatRequest& request,
                        const std::string& member = "");
// "chat_template_kwargs" and "reasoning_effort".
void read_thinking(const Field& fields, Body& body, ChatRequest& request);
// The limit of the server applies to requests with and without a limit of their own.
void limit_tokens(const Api& api, AnswerSettings& settings);
// Refuses a field unless it is absent or has this value: no other one can be honoured.
void expect_only(const Field& fields, const char* name, const OrderedJson& value);

// Whether the answer is streamed, and with which extra chunks.
struct StreamChoice {
  bool stream = false, usage = false, progress = false, timings = false;
};
StreamChoice read_stream(const Field& fields);

const char* finish_reason(const GenerateResult& result, bool calls = false);
// Sums over all answers to one prompt.
struct Usage {
  int prompt = 0, cached = 0, generated = 0, reasoning = 0;
  void add(const GenerateResult& result, int reasoning_tokens = 0);
};
OrderedJson usage_json(const Usage& usage);
// Timings as llama-server names them. Times of several answers at once overlap, so they are those
// of the slowest one; tokens are those of all.
class Timings {
 public:
  void add(std::span<const GenerateResult> answers);  // to one prompt
  OrderedJson json() const;

 private:
  int cached_ = 0, read_ = 0, written_ = 0, steps_ = 0, drafted_ = 0, accepted_ = 0;
  double prompt_seconds_ = 0, decode_seconds_ = 0;
};
OrderedJson timings_json(const GenerateResult& result);
// The same while an answer is generated, from its events.
class RunningTimings {
 public:
  void take(const ChatEvent& event);
  OrderedJson json() const;
  OrderedJson progress() const;  // of the prompt: {"total", "cache", "processed", "time_ms"}
  int drawn() const { return drawn_; }

 private:
  using Clock = std::chrono::steady_clock;
  size_t known_ = 0, all_ = 0;
  std::optional<size_t> cached_;
  int drawn_ = 0;
  Clock::time_point start_ = {}, read_ = {}, last_ = {};
};
// Refuses a request for more texts than one request may have.
void expect_few_texts(size_t all);
OrderedJson tool_calls_json(std::span<const ToolCall> calls);
// {"token", "logprob", "bytes", "id", "top_logprobs"}
OrderedJson log_probability_json(const Tokenizer& tokenizer, TokenId token,
                                 const LogProbabilities& values);
// Replaces "NAME":null in the text of an object by "NAME":VALUE. A
// large value takes a fraction of the memory as text.
void put_member(std::string& text, const std::string& name, std::string_view value);
double finite(double log_probability);  // JSON has no infinity

// The last fields of every response: the seed, and what was ignored.
void add_remarks(OrderedJson& response, uint64_t seed, const std::vector<std::string>& warnings);

}  // namespace chaski
