// A conversation with a model: messages become a prompt, the prompt an answer, the answer a
// message. It knows neither a terminal nor a session: the caller passes the function that generates
// (generate() with one session, or a request of a Scheduler) and receives events.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/conversation/answer_stream.h"
#include "engine/conversation/conversation_file.h"
#include "engine/conversation/tool_calling.h"
#include "engine/requests/request.h"

namespace chaski {

// What a conversation needs to know of its model. All of it must outlive the conversation.
struct ConversationModel {
  const Metadata& meta;
  const Tokenizer& tokenizer;
  int context_length;
  std::string name;  // for messages
};

struct ConversationOptions {
  std::string system;  // empty: no system message
  bool thinks = true;  // false: the template is asked for answers without thinking
  ToolOptions tools;
  TemplateChoice chat_template = {};  // empty: the model's own
  jinja::Names variables = {};        // more variables of the template
};

// The conversation with its last question does not fit into the context.
struct ContextOverflow : Error {
  ContextOverflow(const std::string& line, size_t tokens, int context, bool question_alone)
      : Error(Exit::prompt_too_long, line, int64_t(tokens), context),
        question_alone(question_alone) {}
  bool question_alone;  // even without the messages before it
};

// The chat template cannot be run with ConversationOptions::variables.
struct VariablesError : Error {
  using Error::Error;
};

struct Answer {
  std::string text;     // as it was generated
  std::string content;  // without the tool calls
  std::string thought;  // with its marks; empty: none
  std::vector<ToolCall> calls;
  std::vector<std::string> faults;  // a line for each call that is damaged or names no known tool
  bool damaged = false;             // a call could not be read and stays in the content
  bool cut_call = false;            // ToolAnswer::cut
  GenerateResult result;
};

// Not thread-safe: one thread at a time calls it. `generate` and `on_event` run in that thread.
class Conversation {
 public:
  // Throws Error(usage) if the chat template cannot use the tools, Error(bad_file) if a chosen
  // template cannot be run.
  Conversation(const ConversationModel& model, const ConversationOptions& options);
  Conversation(const Conversation&) = delete;

  // Continues with another model. Throws what the constructor throws, and then nothing has changed.
  // The old model may be closed before.
  void change_model(const ConversationModel& model, const TemplateChoice& chat_template = {});

  const ChatTemplate& format() const { return format_; }
  const ToolCalling& tool_calling() const { return tool_calling_; }
  const std::vector<ChatMessage>& messages() const { return messages_; }
  // Also those that a full context has dropped, after the system message.
  std::vector<ChatMessage> all_messages() const;
  // The tokens of the conversation without a generation prompt.
  std::vector<TokenId> tokens() const;
  // The same with a generation prompt: what the next answer is generated after, if it fits.
  std::vector<TokenId> prompt() const;

  bool has_system() const { return !messages_.empty() && messages_[0].role == "system"; }
  const std::string& system() const { return system_; }
  // Replaces the system message, also for conversations after clear(). An empty text removes it.
  void set_system(const std::string& text);
  void clear();  // removes all messages except the system message
  // Replaces all messages, the system message too.
  void set_messages(std::vector<ChatMessage> messages);

  void ask(const std::string& question);
  // The first call of the last answer that has no result yet; null: the next message is a
  // question.
  const ToolCall* open_call() const;
  // What a tool returned for a call of the last answer.
  void add_tool_result(const ToolCall& call, const std::string& text);
  const ChatMessage* last_question() const;  // null: there is none
  const ChatMessage* last_answer() const;
  // The beginning of the next answer, which the model continues: the last message, if it is an
  // assistant's without calls after a question. Null: there is none.
  const ChatMessage* begun_answer() const;
  // Removes the last question and everything after it, and returns the question. If it was the only
  // question in the context, the messages that the context dropped come back. Throws Error(usage)
  // if there is no question.
  std::string take_back();
  // The messages now, also those that a full context has dropped, for restore().
  struct Snapshot {
    std::vector<ChatMessage> messages, dropped;
  };
  Snapshot snapshot() const { return {messages_, dropped_}; }
  void restore(const Snapshot& earlier);

  using Generate = std::function<GenerateResult(std::span<const TokenId> prompt,
                                                const GenerateOptions& options, const Sink& sink)>;
  // Generates the answer to the last message and appends it. If begun_answer() is set, the result
  // and the events contain only the text that the model adds to it, and may_force is ignored. Adds
  // to `options` what the template and the tools need. A grammar of `options` applies after a
  // thought, and allows a tool call instead of the text. `may_force`: the answer must be a tool
  // call if the tool choice says so. If the context is full and options.context_policy allows it,
  // the oldest turns are dropped first. Throws ContextOverflow, Error(usage) with the template's
  // own words, or what `generate` throws. If an event `generated` came before, the text so far is
  // then the answer: begun_answer() returns it. Otherwise the last message, a question or a tool's
  // result, is removed, and begun_answer() may return the answer to an earlier question.
  Answer answer(const GenerateOptions& options, bool may_force, const Generate& generate,
                const OnAnswerEvent& on_event);

  // Throws Error(usage) if `path` is a file that is not an earlier state of this conversation: a
  // mistyped name must not overwrite a model or another conversation.
  void expect_can_save(const std::string& path) const;
  // Writes all_messages(), settings and the name of the model to a file. Throws what
  // expect_can_save() throws, and Error(io).
  void save(const std::string& path, const Settings& settings, const std::string& model);
  // Replaces the messages by those of a file and returns the rest of it. Throws
  // Error(io | bad_file).
  SavedConversation load(const std::string& path);

 private:
  std::vector<TokenId> render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                              std::optional<size_t>* rewritten = nullptr) const;
  void constrain(std::span<const TokenId> prompt, GenerateOptions& options) const;
  std::vector<TokenId> fitting_prompt(const GenerateOptions& options,
                                      const OnAnswerEvent& on_event);
  bool fits() const;  // whether the context holds all messages
  bool last_turn_fits() const;
  // Returns how many messages it dropped; 0 if that does not make enough room.
  size_t drop_turns(std::vector<TokenId>& prompt);
  int kept_by_shift(std::span<const TokenId> prompt) const;
  void append_begun(const std::string& begun, std::vector<TokenId>& prompt) const;
  std::vector<Tokenizer::Part> begun_in_channels(const std::string& begun) const;
  void expect_room(std::span<const TokenId> prompt) const;
  bool ends_in_thought(std::span<const TokenId> prompt) const;
  void append_final_channel(std::vector<TokenId>& prompt) const;
  void append_control(std::string_view text, std::vector<TokenId>& prompt) const;
  void read_template(const TemplateChoice& choice);
  std::vector<ChatMessage>::iterator find_question();
  void drop_question();
  void drop_unanswered();
  void put_back(size_t dropped);

  std::optional<ConversationModel> model_;  // optional: references cannot be assigned
  bool thinks_;
  bool thinks_by_itself_ = false;  // answers may begin with a thought that the prompt does not open
  bool channels_ = false;          // answers are messages in channels (channels.h)
  ToolOptions tools_;
  jinja::Names variables_;
  ChatTemplate format_;
  ToolCalling tool_calling_;
  std::string system_;
  std::vector<ChatMessage> messages_;
  // The oldest messages, which a full context has dropped, and how many of them the last answer().
  std::vector<ChatMessage> dropped_;
  size_t newly_dropped_ = 0;
  std::vector<std::string> own_files_;  // saved or loaded by this object
  bool rewriting_reported_ = false;
};

}  // namespace chaski
