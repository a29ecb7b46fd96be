// The chat command in a terminal or a pipe: it reads messages and slash commands, passes messages
// to a Conversation, and shows the answers.
#pragma once
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/conversation/conversation.h"
#include "main/commands/speaker.h"
#include "main/commands/tool_use.h"
#include "main/terminal/answer_view.h"
#include "main/terminal/json_output.h"
#include "main/terminal/line_editor.h"

namespace chaski {

ConversationModel model_of(const Engine& engine);
// Throws Error(usage) if the file is a model or a KV cache.
void expect_conversation(const std::string& path);
// The file or folder of a model that a conversation was saved with; empty: it is not here.
std::string path_of_saved_model(const std::string& name);

struct ChatFlags {
  GenerationFlags generation;
  PromptFlags question;
  ToolFlags tools;
  std::string system, resume, think = "auto", chat_template;
  TemplateChoice format;  // of --chat-template
  Flag system_flag, model_flag, hub_flag;
  std::vector<Flag> settings;  // the flags that /set can change
  JsonForm json;
  bool lines = false, no_word_wrap = false, no_history = false;

  // True if a person types the messages at a terminal.
  bool interactive() const;
};

class Chat {
 public:
  explicit Chat(ChatFlags& flags);
  // Prints notices about the template and loads the conversation of --resume.
  void begin();
  // Asks one question. Returns the exit status, as talk() does.
  int answer_once(const std::string& question);
  // Reads messages and commands until the input ends.
  int talk();
  // The slash commands with their arguments, and what they do.
  static std::vector<std::pair<std::string, std::string>> manual();

 private:
  using Message = LineEditor::Message;
  struct Command {
    const char *name, *argument, *help;
    void (Chat::*run)(const std::string& argument);
  };
  enum class Typed { here, in_file };  // where settings are from: those of a file name no files
  enum class Cause { question, edit, retry, result };  // of an answer; result: that of a tool call
  struct AttachedFile {
    std::string path, text;
  };
  // A question of the conversation that was asked in this chat.
  struct Asked {
    std::string typed;                                        // in the line editor
    std::vector<AttachedFile> files = {}, result_files = {};  // sent with it, and with tool results
  };
  // The chat before a message. It is restored if the answer to the message does not begin.
  struct Snapshot {
    Conversation::Snapshot conversation;
    std::vector<Asked> asked;
    std::vector<AttachedFile> files;
    Settings changed;
    uint64_t seed;
  };
  // Sums over all answers of this chat.
  struct Total {
    uint64_t answers = 0, read = 0, cached = 0, written = 0, drafted = 0, accepted = 0;
    uint64_t timed = 0;  // tokens read for prompts that were read to their end
    double prompt_seconds = 0, decode_seconds = 0;

    void add(const GenerateResult& result);
  };

  // chat.cpp: messages and answers
  void put_template_notices();
  std::string prompt();
  void take(const Message& message);
  void drop(const Message& interrupted);
  Snapshot snapshot() const;
  void restore(const Snapshot& earlier);
  void ask(const Message& message, Cause cause);
  void take_tool_result(const std::string& text);
  void reply(Cause cause, const Snapshot& earlier);
  void put_begun_json(GenerateResult so_far);
  std::string rollback_notice(Cause cause) const;
  std::string drop_unanswered(Cause cause);
  void put_error_event(const Error& error) const;
  const char* advice_on_full_context(Cause cause, bool alone) const;
  void take_event(const AnswerEvent& event, AnswerView& view);
  void show_answer(Answer answer, AnswerView& view);
  void report_end(const GenerateResult& result);
  std::string state_line(const GenerateResult& result) const;
  std::string of_context(size_t tokens) const;
  // An error of one message. In a pipe the exit status is that of the first one.
  void report_error(Exit code, const std::string& line);

  // chat_commands.cpp: slash commands
  static std::span<const Command> commands();
  static std::vector<std::string> names_of_commands();
  // The command at the beginning of a message; null: none.
  static const Command* command_of(const std::string& message);
  void run_command(const std::string& line);
  std::vector<LineEditor::Completion> completions(const std::string& typed);
  void help(const std::string&);
  void quit(const std::string&) { over_ = true; }
  void clear(const std::string&);
  void set_system(const std::string& text);
  void undo(const std::string&);
  std::string take_question();
  std::string remove_question();
  void retry(const std::string&);
  void edit(const std::string& where);
  void edit_in_editor(const std::string& question);
  void attach(const std::string& path);
  std::string with_files(std::string text, std::vector<AttachedFile>& sent);
  void queue_again(std::vector<AttachedFile>& sent);
  void put_queued_files() const;
  void history(const std::string&);
  void show_last_turns();
  void copy(const std::string&);
  void save(const std::string& path);
  void load(const std::string& path);
  void think(const std::string& how);

  // chat_settings.cpp: slash commands about the model and the settings
  void change_model(const std::string& name);
  void set(const std::string& text);
  static constexpr const char* kSystem = "system";  // /set takes it, too; it is no setting
  std::string shown_model() const;
  std::string lasting_name() const;
  static std::string read_setting(GenerationFlags& settings, const std::string& typed,
                                  const std::string& value, Typed where);
  void change_settings(const Settings& changes, Typed where = Typed::here);
  void put_other_model(const std::string& saved, const std::string& path) const;
  void take_settings(Settings saved, const std::string& path);
  void put_reset_settings(const Settings& saved) const;
  void forget_settings();
  void show_settings();
  void show(const std::string&);
  void stats(const std::string&);
  void count_tokens(const std::string&);

  const ChatFlags& flags_;
  Speaker speaker_;
  Conversation conversation_;
  GenerationFlags settings_;                        // the flags with the changes of /set
  const std::shared_ptr<const Rules> first_rules_;  // of the flags without these changes
  bool changed_model_ = false;                      // by /model
  const bool interactive_;
  const bool goes_on_;  // after an answer that failed
  Interruption interruption_;
  LineEditor editor_;
  std::string think_, thought_;  // thought_: of the last answer
  Total total_;
  Settings changed_;                 // by /set or by a loaded conversation
  std::vector<AttachedFile> files_;  // for the next message
  std::vector<Asked> asked_;    // the last questions of the conversation, the last one at the end
  bool edits_ = false;          // the next question replaces the last one
  bool call_is_shown_ = false;  // the tool call that waits for its result
  bool over_ = false;
  int status_ = 0;  // exit status of the program
};

}  // namespace chaski
