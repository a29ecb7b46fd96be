// chaski chat: a conversation in the terminal, or over a pipe with one question per line. A message
// of several lines stands between two """, has a backslash at the end of a line, or is pasted.
// stdout carries the answers. Nothing of a conversation is dropped silently: when it no longer fits
// the context, chat says so and waits for /clear or /undo, or, with --context-policy, says what it
// drops.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "engine/text/conversation_file.h"
#include "engine/text/own_template.h"
#include "main/commands.h"
#include "main/json_output.h"
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

constexpr std::string_view kBlock = "\"\"\"";

class Chat {
 public:
  explicit Chat(const ChatFlags& flags)
      : flags_(flags),
        speaker_(flags.generation),
        format_(ChatTemplate::detect(speaker_.engine->meta(), speaker_.engine->tokenizer())),
        interruption_(stdin_is_terminal() ? Interruption::Scope::answer
                                          : Interruption::Scope::nothing),
        editor_(interruption_),
        system_(flags.system) {
    for (const std::string& text : format_.stop_strings()) speaker_.options.stop.push_back(text);
    speaker_.options.interrupt = &interruption_.requested();
    clear("");
  }

  int run() {
    if (!format_.notice().empty()) put_notice(format_.notice());
    if (format_.own() && !format_.own()->takes_system() && !flags_.system.empty())
      put_notice(
          "the chat template has no place for a system message: it stands in front of the "
          "first question");
    if (editor_.interactive()) put_note("/help lists the commands");
    while (!over_) {
      interruption_.reset();
      const Message message = read();
      if (message.result == LineEditor::Result::end) break;
      if (message.result == LineEditor::Result::interrupted)
        put_note(message.text.empty() ? "^C (/quit or Ctrl-D ends the chat)" : "^C");
      else
        take(message);
    }
    if (editor_.interactive() && !over_) put_note("");
    return int(Exit::done);
  }

 private:
  struct Message {
    LineEditor::Result result;
    std::string text;
    bool one_line = true;  // and so perhaps a command
  };
  struct Command {
    const char *name, *argument, *help;
    void (Chat::*run)(const std::string& argument);
  };

  // One line, or several that belong together.
  Message read() {
    Message out;
    out.result = editor_.read("> ", out.text);
    out.one_line = !editor_.pasted();
    if (out.result != LineEditor::Result::line || !out.one_line) return out;
    const bool block = out.text.starts_with(kBlock);
    if (block) out.text.erase(0, kBlock.size());
    while (block ? !out.text.ends_with(kBlock) : out.text.ends_with('\\')) {
      out.one_line = false;
      if (!block) out.text.pop_back();
      std::string line;
      const LineEditor::Result result = editor_.read("... ", line);
      if (result == LineEditor::Result::interrupted) return {result, "", true};
      if (result == LineEditor::Result::end) return out;
      out.text += (out.text.empty() && block ? "" : "\n") + line;
    }
    if (block) {
      out.text.resize(out.text.size() - kBlock.size());
      if (out.text.ends_with('\n')) out.text.pop_back();
      out.one_line = false;
    }
    return out;
  }

  void take(const Message& message) {
    const std::string& text = message.text;
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return;
    if (!message.one_line || text[0] != '/') return ask(text);
    const size_t space = std::min(text.find(' '), text.size());
    const std::string name = text.substr(0, space);
    const size_t begin = text.find_first_not_of(' ', space);
    const std::string argument = begin == std::string::npos ? "" : text.substr(begin);
    for (const Command& command : commands()) {
      if (name != command.name) continue;
      if (!argument.empty() && !*command.argument)
        return put_error(fmt::format("{} stands alone, found \"{}\"", name, argument));
      try {
        return (this->*command.run)(argument);
      } catch (const Error& error) {
        return put_error(error.what());
      }
    }
    put_error(fmt::format("{} is no command, /help lists them", name));
  }

  void help(const std::string&) {
    for (const Command& command : commands())
      put_note(fmt::format("{:<14} {}", fmt::format("{} {}", command.name, command.argument),
                           command.help));
    put_note("\"\"\"            begins and ends a message of several lines; so does a paste");
    put_note("\\              at the end of a line: the message goes on");
    put_note("Ctrl-C         stop the answer; at the prompt: drop the line");
  }

  void quit(const std::string&) { over_ = true; }

  void clear(const std::string&) {
    messages_.clear();
    if (!system_.empty()) messages_.push_back({"system", system_});
  }

  bool has_system() const { return !messages_.empty() && messages_[0].role == "system"; }

  void set_system(const std::string& text) {
    if (text.empty())
      return put_note(has_system() ? messages_[0].content : "there is no system message");
    if (has_system()) messages_.erase(messages_.begin());
    system_ = text;
    messages_.insert(messages_.begin(), {"system", system_});
  }

  // The last question with all behind it; nothing if there is none.
  std::optional<std::string> take_back() {
    const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                   [](const ChatMessage& m) { return m.role == "user"; });
    if (last == messages_.rend()) {
      put_error("there is no question yet");
      return std::nullopt;
    }
    const std::string question = last->content;
    messages_.erase(last.base() - 1, messages_.end());
    return question;
  }

  void undo(const std::string&) {
    if (const auto question = take_back())
      put_note("taken back: " + question.value().substr(0, question->find('\n')));
  }

  // The same seed would draw the same answer.
  void retry(const std::string&) {
    const auto question = take_back();
    if (!question) return;
    ++speaker_.options.sampling.seed;
    ask(*question);
  }

  // A name may be mistyped, and a model is not to be lost by that.
  static void expect_no_other_file(const std::string& path) {
    std::error_code none;
    if (!std::filesystem::exists(path, none)) return;
    try {
      read_conversation(path);
    } catch (const Error&) {
      fail(Exit::usage, "{}: is there and holds no conversation, expected another name", path);
    }
  }

  void save(const std::string& path) {
    if (path.empty()) return put_error("/save expects a file");
    expect_no_other_file(path);
    JsonValue messages = JsonValue::array();
    for (const ChatMessage& m : messages_)
      messages.push_back({{"role", m.role}, {"content", m.content}});
    std::ofstream file(path, std::ios::binary);
    file << JsonValue{{"messages", messages}}.dump() << '\n' << std::flush;
    if (!file) fail(Exit::io, "{}: {}", path, std::strerror(errno));
    put_note(fmt::format("{} in {}", counted(messages_.size(), "message"), path));
  }

  void load(const std::string& path) {
    if (path.empty()) return put_error("/load expects a file");
    messages_ = read_conversation(path);
    system_ = has_system() ? messages_[0].content : "";
    put_note(fmt::format("{} from {}", counted(messages_.size(), "message"), path));
  }

  void count_tokens(const std::string&) {
    const size_t tokens = messages_.empty() ? 0 : format_.render(messages_, false).size();
    put_note(fmt::format("{} of {}", counted(tokens, "token"), speaker_.engine->context_length()));
  }

  void ask(const std::string& question) {
    messages_.push_back({"user", question});
    std::vector<TokenId> prompt;
    try {
      prompt = format_.render(messages_, true);
      say_what_is_rewritten();
    } catch (const Error& error) {  // the template's own words
      messages_.pop_back();
      if (!editor_.interactive()) throw;
      return put_error(error.what());
    }
    const int whole = int(prompt.size());
    if (whole >= speaker_.engine->context_length() && !drop_turns(prompt)) return refuse(whole);
    keep_system(prompt);
    editor_.let_wait();
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
    put_notice(fmt::format(
        "the chat template writes answer {} otherwise than it was generated (thoughts are "
        "mostly left away), so what comes behind is read again",
        turn));
  }

  // With --context-policy: the oldest questions and their answers, until half of the context is
  // free; false if the last question alone has no room.
  bool drop_turns(std::vector<TokenId>& prompt) {
    if (speaker_.options.context_policy == ContextPolicy::stop) return false;
    const int context = speaker_.engine->context_length();
    std::vector<ChatMessage> kept = messages_;
    const ptrdiff_t first = has_system() ? 1 : 0;
    while (int(prompt.size()) > context / 2) {
      const auto next = std::find_if(kept.begin() + first + 1, kept.end(),
                                     [](const ChatMessage& m) { return m.role == "user"; });
      if (next == kept.end()) break;
      kept.erase(kept.begin() + first, next);
      prompt = format_.render(kept, true);
    }
    if (int(prompt.size()) >= context) return false;
    put_notice(
        fmt::format("the context of {} tokens is full: the {} oldest messages are "
                    "dropped from the conversation, and the others read again",
                    context, messages_.size() - kept.size()));
    messages_ = std::move(kept);
    return true;
  }

  // What a shift in the middle of an answer keeps: what the conversation has in common with one
  // that only has the same system message, which may be the template's own.
  void keep_system(std::span<const TokenId> prompt) {
    speaker_.options.keep = 0;
    if (speaker_.options.context_policy == ContextPolicy::stop) return;
    const size_t first = has_system() ? 1 : 0;
    std::vector<ChatMessage> other(messages_.begin(), messages_.begin() + ptrdiff_t(first));
    other.push_back({"user", messages_[first].content.starts_with('a') ? "b" : "a"});
    const std::vector<TokenId> tokens = format_.render(other, true);
    speaker_.options.keep =
        int(std::mismatch(prompt.begin(), prompt.end(), tokens.begin(), tokens.end()).first -
            prompt.begin());
  }

  // The question is taken back, so that the conversation stays as it was. In a pipe nobody is there
  // to type /clear.
  void refuse(int tokens) {
    messages_.pop_back();
    if (speaker_.options.context_policy != ContextPolicy::stop) {
      const std::string long_one = fmt::format(
          "this message alone has no room in the context of {} tokens, expected a shorter one or a "
          "larger --ctx",
          speaker_.engine->context_length());
      if (!editor_.interactive()) throw Error(Exit::prompt_too_long, long_one);
      return put_error(long_one);
    }
    const std::string line = fmt::format(
        "the conversation with this question has {} tokens, the context holds {}, and an answer "
        "needs room: --ctx N for more where the model has it, or --context-policy shift",
        tokens, speaker_.engine->context_length());
    if (!editor_.interactive()) throw Error(Exit::prompt_too_long, line);
    put_error(line + "; the question is dropped, /clear starts anew");
  }

  void say_how_it_ended(const GenerateResult& result) {
    if (result.finish == Finish::full)
      put_notice(
          fmt::format("the context of {} tokens is full, the answer ends here: /clear starts anew",
                      speaker_.engine->context_length()));
    if (!flags_.generation.verbose()) return;
    put_summary(timing_line(result, bandwidth_beside(*speaker_.engine, result),
                            speaker_.options.sampling.seed, true) +
                threads_part(*speaker_.engine));
  }

  const ChatFlags& flags_;
  Speaker speaker_;
  ChatTemplate format_;
  Interruption interruption_;
  LineEditor editor_;
  std::string system_;
  std::vector<ChatMessage> messages_;
  bool said_rewritten_ = false, over_ = false;

  static std::span<const Command> commands();
};

std::span<const Chat::Command> Chat::commands() {
  static constexpr Command kAll[] = {
      {"/help", "", "this list", &Chat::help},
      {"/system", "TEXT", "what the model is told before the conversation", &Chat::set_system},
      {"/clear", "", "forget the conversation", &Chat::clear},
      {"/undo", "", "take back the last question and its answer", &Chat::undo},
      {"/retry", "", "another answer to the last question", &Chat::retry},
      {"/save", "FILE", "keep the conversation, as JSON", &Chat::save},
      {"/load", "FILE", "go on with a conversation that was kept", &Chat::load},
      {"/tokens", "", "how much of the context is used", &Chat::count_tokens},
      {"/quit", "", "end (or Ctrl-D)", &Chat::quit},
      {"/bye", "", "the same", &Chat::quit},
      {"/exit", "", "the same", &Chat::quit},
      {"/?", "", "as /help", &Chat::help}};
  return kAll;
}

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
