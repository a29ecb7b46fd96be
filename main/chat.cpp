// chaski chat: a conversation in the terminal, or over a pipe with one question per line. stdout
// carries the answers. Nothing of a conversation is dropped silently: when it no longer fits the
// context, chat says so and waits for /clear.
#include <algorithm>
#include <memory>
#include <vector>

#include "engine/text/own_template.h"
#include "main/commands.h"
#include "main/line_editor.h"
#include "main/options.h"
#include "main/output.h"
#include "main/signals.h"
#include "main/speaker.h"
#include "main/timing.h"

namespace chaski {

namespace {

struct ChatFlags {
  GenerationFlags generation;
  std::string system;
};

constexpr const char* kHelp[] = {"/clear  forget the conversation", "/quit   end (or Ctrl-D)",
                                 "Ctrl-C  stop the answer; at the prompt: drop the line"};

class Chat {
 public:
  explicit Chat(const ChatFlags& flags)
      : flags_(flags),
        speaker_(flags.generation),
        format_(ChatTemplate::detect(speaker_.engine->meta(), speaker_.engine->tokenizer())),
        interruption_(stdin_is_terminal() ? Interruption::Scope::answer
                                          : Interruption::Scope::nothing),
        editor_("> ", interruption_) {
    for (const std::string& text : format_.stop_strings()) speaker_.options.stop.push_back(text);
    speaker_.options.interrupt = &interruption_.requested();
    clear();
  }

  int run() {
    if (!format_.notice().empty()) put_note("chaski: " + format_.notice());
    if (format_.own() && !format_.own()->takes_system() && !flags_.system.empty())
      put_note(
          "chaski: the chat template has no place for a system message: it stands in front of the "
          "first question");
    if (editor_.interactive()) put_note("/help lists the commands");
    std::string line;
    for (;;) {
      interruption_.reset();
      const LineEditor::Result result = editor_.read(line);
      if (result == LineEditor::Result::end) break;
      if (result == LineEditor::Result::interrupted)
        put_note(line.empty() ? "^C (/quit or Ctrl-D ends the chat)" : "^C");
      else if (!take(line))
        return int(Exit::done);
    }
    if (editor_.interactive()) put_note("");
    return int(Exit::done);
  }

 private:
  // False if the chat is over.
  bool take(const std::string& line) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return true;
    if (line == "/quit") return false;
    if (line == "/help")
      for (const char* text : kHelp) put_note(text);
    else if (line == "/clear")
      clear();
    else if (line[0] == '/')
      put_note(fmt::format("chaski: {} is no command, expected /help, /clear or /quit", line));
    else
      ask(line);
    return true;
  }

  void clear() {
    messages_.clear();
    if (!flags_.system.empty()) messages_.push_back({"system", flags_.system});
  }

  void ask(const std::string& question) {
    messages_.push_back({"user", question});
    const std::vector<TokenId> prompt = format_.render(messages_, true);
    say_what_is_rewritten();
    if (int(prompt.size()) >= speaker_.engine->context_length()) return refuse(int(prompt.size()));
    const GenerateResult result =
        generate(*speaker_.session, prompt, speaker_.options, put_model_text);
    messages_.push_back({"assistant", result.text});
    if (!result.text.ends_with('\n')) put("\n");
    say_how_it_ended(result);
  }

  // Once: a template that does so to one answer does it to all.
  void say_what_is_rewritten() {
    if (said_rewritten_) return;
    const auto answer = format_.rewritten(messages_);
    if (!answer) return;
    said_rewritten_ = true;
    const auto turn = std::count_if(messages_.begin(), messages_.begin() + ptrdiff_t(*answer),
                                    [](const ChatMessage& m) { return m.role == "user"; });
    put_note(fmt::format(
        "chaski: the chat template writes answer {} otherwise than it was generated (thoughts are "
        "mostly left away), so what comes behind is read again",
        turn));
  }

  // The question is taken back, so that the conversation stays as it was. In a pipe nobody is there
  // to type /clear.
  void refuse(int tokens) {
    messages_.pop_back();
    const std::string line = fmt::format(
        "the conversation with this question has {} tokens, the context holds {}, and an answer "
        "needs room",
        tokens, speaker_.engine->context_length());
    if (!editor_.interactive()) throw Error(Exit::prompt_too_long, line);
    put_note("chaski: " + line + ": the question is dropped, /clear starts anew");
  }

  void say_how_it_ended(const GenerateResult& result) {
    if (result.finish == Finish::full)
      put_note(fmt::format(
          "chaski: the context of {} tokens is full, the answer ends here: /clear starts anew",
          speaker_.engine->context_length()));
    if (!flags_.generation.verbose) return;
    put_note(timing_line(result, bandwidth_beside(*speaker_.engine, result, true),
                         speaker_.options.sampling.seed) +
             threads_part(*speaker_.engine));
  }

  const ChatFlags& flags_;
  Speaker speaker_;
  ChatTemplate format_;
  Interruption interruption_;
  LineEditor editor_;
  std::vector<ChatMessage> messages_;
  bool said_rewritten_ = false;
};

int chat(ChatFlags& flags) {
  flags.generation.check();
  flags.generation.choose_seed();
  return Chat(flags).run();
}

}  // namespace

Action declare_chat(Flags parser) {
  auto flags = std::make_shared<ChatFlags>();
  flags->generation.declare(parser);
  parser.add("--system", flags->system, "what the model is told before the conversation")
      .type("TEXT");
  return [flags] { return chat(*flags); };
}

}  // namespace chaski
