// What every API asks of a model, free of the form of any of them. A dialect (openai.h) is a parser
// from a body to a ChatRequest or TextRequest, and a writer of ChatEvents and ChatAnswers.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/conversation/conversation.h"
#include "engine/requests/loaded_model.h"
#include "main/api/settings.h"

namespace chaski {

// A model as requests see it. Does not change while requests use it.
struct ServedModel {
  std::string name;     // by which requests ask for it
  int64_t created = 0;  // seconds since 1970
  std::shared_ptr<LoadedModel> model;
  DefaultSettings defaults;
  TemplateChoice chat_template = {};  // empty: the model's own
  // The model's own context is longer, but the free memory did not hold it.
  bool memory_chose_context = false;
  // Generates one text and returns when it has ended. Of the wiring of its options, `rules`,
  // `interrupt` and the functions are used, which the calling thread calls. Many threads may call
  // it at once.
  Conversation::Generate generate;
  // embeddings() of engine/requests. No function: the server does not offer the model for that.
  // Many threads may call it at once.
  std::function<std::vector<std::vector<float>>(std::span<const std::vector<TokenId>> texts,
                                                const std::atomic<bool>& gone)>
      embed = {};
  // prompt_scores() of engine/requests. Many threads may call it at once.
  std::function<std::vector<LogProbabilities>(std::span<const TokenId> tokens, int most,
                                              const std::atomic<bool>& gone)>
      score = {};

  Engine& engine() const { return *model->engine(); }
};
// too_long() of api_error.h for this model.
ApiError too_long(size_t prompt_tokens, const ServedModel& served);

// Where the response to one request goes. One thread at a time calls it.
class Reply {
 public:
  virtual ~Reply() = default;
  // A whole response. `type` is its media type.
  virtual void whole(int status, const char* type, const std::string& body) = 0;
  // A stream with status 200: begin(), parts, end(). part() waits while the receiver is slow.
  virtual void begin(const char* type) = 0;
  virtual void part(const std::string& text) = 0;
  virtual void end() = 0;
  // Set when the response has no receiver any more, or its time is over. The answer then ends as
  // interrupted.
  virtual const std::atomic<bool>& gone() const = 0;
};

constexpr const char *kJsonType = "application/json", *kEventStream = "text/event-stream",
                     *kNdjson = "application/x-ndjson";

// What happens while a text is generated. Views are valid during the call only.
struct ChatEvent {
  enum class Kind {
    prompt,      // the prompt has `count` tokens
    reading,     // `count` of `all` tokens of the prompt are read
    token,       // `token` was drawn; its text may come later
    reasoning,   // `text` of a thought, without its marks
    text,        // `text` for the reader
    call_begun,  // `call` with its id and name; `count` counts the calls of the answer from 0
    call_part,   // `text` is more of the arguments of call `count`
    // `call`, complete: the parts before are its arguments. A call that has begun and turns out to
    // be damaged has no such event; its text comes as `text`.
    call,
  };
  Kind kind;
  std::string_view text = {};
  size_t count = 0, all = 0;
  TokenId token = 0;
  const LogProbabilities* log_probabilities = nullptr;  // of the token, if they were asked for
  const ToolCall* call = nullptr;
};
using OnChatEvent = std::function<void(const ChatEvent&)>;

struct ChatRequest {
  std::vector<ChatMessage> messages;  // at least one of a user
  ToolOptions tools;
  bool thinks = true;
  jinja::Names variables = {};  // of the chat template, as chat_template_kwargs gives them
  bool parallel_calls = true;   // false: the answer ends with its first call
  AnswerSettings settings;
};

struct ChatAnswer {
  std::string content;    // the texts of all ChatEvent::text
  std::string reasoning;  // the texts of all ChatEvent::reasoning
  std::vector<ToolCall> calls;
  std::vector<std::string> faults;  // a line for each call that is damaged or names no known tool
  GenerateResult result;
  int reasoning_tokens = 0;
};

// Generates an answer; blocks until it has ended. `number` is added to the seed: answer i of n.
// `gone` ends it early. Throws ApiError. Events may have been sent before only if a pass failed.
ChatAnswer answer_chat(const ServedModel& served, const ChatRequest& request, int number,
                       const std::atomic<bool>& gone, const OnChatEvent& on_event);

struct TextRequest {
  std::vector<TokenId> prompt;  // not empty
  AnswerSettings settings;
};

// The same without a chat template.
GenerateResult complete_text(const ServedModel& served, const TextRequest& request, int number,
                             const std::atomic<bool>& gone, const OnChatEvent& on_event);

// Adds a line if the time of the answer was over.
void note_cut(const GenerateResult& result, std::vector<std::string>& warnings);

// False for a list of several prompts.
bool is_one_prompt(const Field& prompt);
// What a control token spelled in the prompt is read as: the request's `parse_special` decides.
Spelled spelled_in(const Field& fields, Spelled otherwise);
// The tokens of a prompt: a text, a list of token ids and texts, or {"prompt_string": TEXT}. Throws
// ApiError.
std::vector<TokenId> tokens_of(const ServedModel& served, const Field& prompt, Spelled as);
std::vector<TokenId> tokens_of(const ServedModel& served, const std::string& prompt,
                               const std::string& path, Spelled as);

// Calls answer(0), ..., answer(n - 1), up to 64 at once, and returns when all have ended. Where the
// system has no more threads, fewer run at once. Throws the error of the first one that failed.
void answer_all(int n, const std::function<void(int number)>& answer);

// A conversation of the request, to count or show its tokens. Throws ApiError.
std::unique_ptr<Conversation> conversation_of(const ServedModel& served,
                                              const ChatRequest& request);

}  // namespace chaski
