// Parts of OpenAI's interfaces that several endpoints and dialects share.
#pragma once
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
// A text, or a list of parts of these types: {"type": "text", "text": ...}.
std::string read_content(const Field& content);
// An answer that a client sends back with its thought.
std::string with_thought(const std::string& thought, const std::string& content);
// "tools", "tool_choice" and "parallel_tool_calls" of an object.
void read_tools(const Field& fields, ChatRequest& request);
// "chat_template_kwargs" and "reasoning_effort".
void read_thinking(const Field& fields, Body& body, ChatRequest& request);
// The limit of the server applies to requests with and without a limit of their own.
void limit_tokens(const Api& api, AnswerSettings& settings);
// Refuses a field unless it is absent or has this value: no other one can be honoured.
void expect_only(const Field& fields, const char* name, const OrderedJson& value);
// A grammar constrains the whole answer, so it leaves no room for calls.
void expect_no_grammar_with_tools(const ChatRequest& request);

// Whether the answer is streamed, and with which extra chunks.
struct StreamChoice {
  bool stream = false, usage = false, progress = false;
};
StreamChoice read_stream(const Field& fields);

const char* finish_reason(const GenerateResult& result, bool calls = false);
// Sums over all answers to one prompt.
struct Usage {
  int prompt = 0, cached = 0, generated = 0, reasoning = 0;
  void add(const GenerateResult& result, int reasoning_tokens = 0);
};
OrderedJson usage_json(const Usage& usage);
OrderedJson timings_json(const GenerateResult& result);  // as llama-server names them
OrderedJson progress_json(size_t known, size_t all, size_t cached, double milliseconds);
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
