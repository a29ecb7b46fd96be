// chaski chat: a conversation in the terminal; one question with -p, -f or a pipe; or, with
// --lines, one question in each line of a pipe. stdout carries the answers only. When a
// conversation no longer fits into the context, chat either refuses the question or, with
// --context-policy, says what it drops.
#include "main/commands/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "engine/conversation/own_template.h"
#include "engine/machine/cache_folder.h"
#include "engine/shelf/shelf.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/output.h"
#include "main/terminal/signals.h"
#include "main/terminal/timing.h"
#include "main/terminal/utf8_note.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string whole_question(const ChatFlags& flags) {
  std::string text = flags.question.read().value_or("");
  if (text.find_first_not_of(kSpace) == std::string::npos)
    fail(Exit::usage, "no question given, expected -p TEXT, -f FILE or text on standard input");
  return text;
}

// Where typed messages are kept for the next chat; empty: nowhere.
std::string history_file(const ChatFlags& flags) {
  const std::string folder = state_folder();
  return flags.no_history || !flags.interactive() || folder.empty() ? "" : folder + "/history";
}

// Without -m, --resume opens the model that the conversation was saved with. A model of the config
// file is only the default of a new conversation.
void choose_saved_model(ChatFlags& flags) {
  std::string& model = flags.generation.model.engine.model;
  if (flags.resume.empty() || flags.model_flag.typed() || flags.hub_flag.typed()) return;
  expect_conversation(flags.resume);  // before another model is opened for nothing
  const std::string name = read_saved_conversation(flags.resume).model;
  if (name.empty() || name == "(bundled)") return;
  const std::string path = path_of_saved_model(name);
  if (path.empty() && model.empty())
    fail(Exit::io,
         "{} was saved with the model {}, which is not on this machine, expected -m MODEL to "
         "continue it with another one",
         flags.resume, escaped(name));
  if (path.empty()) return;
  model = path;
  put_state(fmt::format("the model is {}, with which {} was saved", escaped(name), flags.resume));
}

Interruption::Scope interruption_scope(const ChatFlags& flags) {
  return flags.interactive() ? Interruption::Scope::answer
         : flags.lines       ? Interruption::Scope::nothing
                             : Interruption::Scope::program;
}

}  // namespace

ConversationModel model_of(const Engine& engine) {
  return {engine.meta(), engine.tokenizer(), engine.context_length(), engine.path()};
}

std::string path_of_saved_model(const std::string& name) {
  if (const FoundModel found = find_model(name, NameMatch::whole); !found.path.empty())
    return found.path;
  std::error_code none;  // a pipe is not opened
  const bool is_here = fs::is_regular_file(name, none) || fs::is_directory(name, none);
  return is_here ? name : "";
}

bool ChatFlags::interactive() const { return stdin_is_terminal() && !question.given(); }

Chat::Chat(ChatFlags& flags)
    : flags_(flags),
      speaker_(flags.generation),
      conversation_(model_of(speaker_.engine()),
                    {flags.system, flags.think != "off", flags.tools.options(), flags.format}),
      settings_(flags.generation),
      first_rules_(speaker_.rules),
      interactive_(flags.interactive()),
      goes_on_(interactive_ || flags.lines),
      interruption_(interruption_scope(flags)),
      editor_(interruption_, history_file(flags),
              [this](const std::string& typed) { return completions(typed); }),
      think_(flags.think) {
  speaker_.options.interrupt = &interruption_.requested();
  speaker_.shows_reading = !flags.json.any();
  speaker_.on_portion = [this] { editor_.keep_holding(); };
}

void Chat::put_template_notices() {
  const ChatTemplate& format = conversation_.format();
  if (const std::string& line = conversation_.tool_calling().notice(); !line.empty())
    put_notice(line);
  if (!format.notice().empty()) put_notice(format.notice());
  if (format.own() && !format.own()->takes_system() && conversation_.has_system())
    put_notice(
        "the chat template does not support system messages: the text is put before the first "
        "question");
  if (flags_.think == "off" && !(format.own() && format.own()->thinking_can_be_off()))
    put_notice("the chat template cannot turn thinking off: --think hide does not print it");
}

void Chat::begin() {
  put_template_notices();
  if (flags_.resume.empty())
    return put_utf8_note("the system message", conversation_.system(), speaker_.tokenizer());
  load(flags_.resume);
  // --system on the command line replaces the system message of the file.
  if (flags_.system_flag.typed() && !flags_.system.empty() &&
      flags_.system != conversation_.system())
    set_system(flags_.system);
}

int Chat::answer_once(const std::string& question) {
  ask({.text = question}, Cause::question);
  if (interruption_.signal() != 0) end_by_signal(interruption_.signal());
  return status_;
}

int Chat::talk() {
  if (interactive_) put_summary("/help lists the commands");
  bool ends_at_interrupt = false;  // Ctrl-C at an empty prompt, twice in a row
  while (!over_) {
    interruption_.reset();
    const Message message = editor_.read(prompt().c_str());
    if (message.result == LineEditor::Result::end) break;
    const bool interrupted = message.result == LineEditor::Result::interrupted;
    const bool empty =
        interrupted && message.text.empty() && !message.dropped && !conversation_.open_call();
    if (empty && ends_at_interrupt) break;
    ends_at_interrupt = empty;
    if (interrupted)
      drop(message);
    else
      take(message);
  }
  if (conversation_.open_call() && !over_)
    put_note("no result: the question and its tool calls are removed");
  if (interactive_ && !over_) put_note("");
  if (!interactive_)
    for (const AttachedFile& file : files_)
      put_notice(file.path + " is not sent, because no message followed it");
  return status_;
}

// The prompt of the next message. If it is the result of a tool call, shows the call first.
std::string Chat::prompt() {
  const ToolCall* const call = edits_ ? nullptr : conversation_.open_call();
  if (!call) return "> ";
  if (interactive_ && !std::exchange(call_is_shown_, true))
    put(fmt::format("call {} {}\nType or paste the tool's result. Ctrl-C removes the question.\n",
                    escaped(call->name), escaped(call->arguments)));
  return fmt::format("{} returns> ", escaped(call->name));
}

// Ctrl-C at the prompt.
void Chat::drop(const Message& interrupted) {
  const bool edits = std::exchange(edits_, false);
  if (interrupted.dropped)
    return put_note(
        fmt::format("^C: the paste is dropped after {}", counted(*interrupted.dropped, "byte")));
  if (!edits && conversation_.open_call() && interrupted.text.empty()) {
    remove_question();
    put_note("no result: the question and its tool calls are removed");
    return put_queued_files();
  }
  put_note(interrupted.text.empty() ? "^C (again, /quit or Ctrl-D ends the chat)" : "^C");
}

// A message of several lines is a command only if it begins with one that exists.
void Chat::take(const Message& message) {
  const std::string& text = message.text;
  const bool edits = std::exchange(edits_, false);
  const bool one_line = text.find('\n') == std::string::npos;
  if (!message.literal && text.starts_with('/') && (one_line || command_of(text)))
    return run_command(text);
  if (!edits && conversation_.open_call()) return take_tool_result(text);
  if (text.find_first_not_of(kSpace) == std::string::npos) return;
  ask(message, edits ? Cause::edit : Cause::question);
}

void Chat::report_error(Exit code, const std::string& line) {
  put_error(line);
  if (!interactive_ && status_ == 0) status_ = int(code);
}

// With Cause::edit, the question replaces the last one.
void Chat::ask(const Message& message, Cause cause) {
  const Snapshot earlier = snapshot();
  put_utf8_note("the question", message.text, speaker_.tokenizer());
  std::vector<AttachedFile> of_results;
  if (cause == Cause::edit) {
    if (!asked_.empty()) of_results = asked_.back().result_files;
    take_question();
  }
  asked_.push_back({message.typed});
  conversation_.ask(with_files(message.text, asked_.back().files));
  queue_again(of_results);
  reply(cause, earlier);
}

Chat::Snapshot Chat::snapshot() const {
  return {conversation_.snapshot(), asked_, files_, changed_, settings_.generate.sampling.seed};
}

void Chat::restore(const Snapshot& earlier) {
  conversation_.restore(earlier.conversation);
  asked_ = earlier.asked, files_ = earlier.files, changed_ = earlier.changed;
  if (std::exchange(settings_.generate.sampling.seed, earlier.seed) != earlier.seed)
    speaker_.set(settings_);
}

// The answer continues when every call has its result.
void Chat::take_tool_result(const std::string& text) {
  const Snapshot earlier = snapshot();
  const ToolCall call = *conversation_.open_call();
  put_utf8_note("the tool's result", text, speaker_.tokenizer());
  if (asked_.empty()) asked_.emplace_back();  // the question is from a file
  conversation_.add_tool_result(call, with_files(text, asked_.back().result_files));
  call_is_shown_ = false;
  if (!conversation_.open_call()) reply(Cause::result, earlier);
}

// Shows the answer to the last message. `earlier`: the chat before this message.
void Chat::reply(Cause cause, const Snapshot& earlier) {
  using Thinking = AnswerView::Thinking;
  call_is_shown_ = false;
  AnswerView view({think_ == "hide"   ? Thinking::hidden
                   : think_ == "auto" ? Thinking::folded
                                      : Thinking::shown,
                   !flags_.no_word_wrap});
  const auto generate = [&](std::span<const TokenId> prompt, const GenerateOptions& options,
                            const Sink& sink) { return speaker_.answer(prompt, options, sink); };
  bool begun = false;
  GenerateResult so_far;
  const auto on_event = [&](const AnswerEvent& event) {
    using Kind = AnswerEvent::Kind;
    if (event.kind == Kind::prompt) so_far.prompt_tokens = int(event.count);
    if (event.kind == Kind::token) so_far.tokens.push_back(event.token);
    if (event.kind == Kind::generated) begun = true;
    take_event(event, view);
  };
  try {
    Answer answer =
        conversation_.answer(speaker_.options, cause != Cause::result, generate, on_event);
    const bool interrupted = interactive_ && answer.result.finish == Finish::interrupted;
    if (interrupted && !begun) {  // perhaps the message is too long
      restore(earlier);
      put_notice(fmt::format("stopped before the answer began: {}", rollback_notice(cause)));
      report_end(answer.result);
    } else {
      show_answer(std::move(answer), view);
      if (interrupted && cause == Cause::retry)
        put_notice("the beginning of this answer replaces the earlier answer");
      if (interrupted && cause == Cause::edit)
        put_notice("this question and the beginning of its answer replace the earlier ones");
    }
  } catch (const ContextOverflow& error) {
    restore(earlier);
    if (!goes_on_) throw;
    const std::string line = fmt::format("{}; {}{}", error.what(), drop_unanswered(cause),
                                         advice_on_full_context(cause, error.question_alone));
    report_error(error.code, line);
    if (flags_.json.lines) put_error_event(error);
  } catch (const Error& error) {  // the conversation continues after an error of one answer
    const bool is_io = error.code == Exit::io;
    if (begun && !flags_.json.any()) view.end(true);
    if (begun && flags_.json.any() && !is_io) put_begun_json(std::move(so_far));
    if (!begun) restore(earlier);
    if (!goes_on_ || is_io) throw;
    report_error(error.code, error.what());
    put_note(begun ? "the answer stops here and is kept; /retry generates another one, /undo "
                     "removes it and the question"
                   : fmt::format("there is no answer: {}", drop_unanswered(cause)));
    if (!begun && flags_.json.lines) put_error_event(error);
  }
  put_queued_files();
}

// In place of the result of a question.
void Chat::put_error_event(const Error& error) const {
  put_event("error", {{"status", int(error.code)}, {"message", error.what()}});
}

// The notice for an answer that failed before it began, after restore(). The next line of a pipe is
// not a second result of the same call, so the call is removed too.
std::string Chat::drop_unanswered(Cause cause) {
  if (interactive_ || cause != Cause::result) return rollback_notice(cause);
  remove_question();
  return "the question and its tool calls are removed";
}

// The JSON of an answer of which an error left only the beginning.
void Chat::put_begun_json(GenerateResult so_far) {
  if (const ChatMessage* const kept = conversation_.begun_answer()) so_far.text = kept->content;
  JsonValue object = begun_json(speaker_.engine(), so_far, speaker_.options.sampling.seed);
  object["tool_calls"] = calls_json({});
  flags_.json.put_result(object);
}

// Says what is restored after an answer did not begin.
std::string Chat::rollback_notice(Cause cause) const {
  const auto removed = [&](std::string line, const char* what) {
    return interactive_ ? line + ", and Up brings " + what + " back" : line;
  };
  switch (cause) {
    case Cause::question:
      return removed("the question is removed", "it");
    case Cause::result:
      return removed("the tool's result is removed", "it");
    case Cause::edit:
      return removed("the conversation is as it was before /edit", "the new question");
    case Cause::retry:
      return "the conversation is as it was before /retry";
  }
  return "";
}

// What to do so that a message fits into the context, after it was removed. `alone`: it does not
// fit even without the messages before it.
const char* Chat::advice_on_full_context(Cause cause, bool alone) const {
  if (cause == Cause::result)
    return interactive_ ? ": Ctrl-C at its prompt removes the question too" : "";
  if (cause != Cause::question || alone || !conversation_.last_question()) return "";
  return ": /set context-policy shift drops old messages, /undo the question before, /clear all";
}

void Chat::take_event(const AnswerEvent& event, AnswerView& view) {
  using Kind = AnswerEvent::Kind;
  if (event.kind == Kind::rewritten)
    put_notice(
        fmt::format("the chat template changes answer {} after it was generated (most templates "
                    "remove thinking), so the tokens after it are read again",
                    event.count));
  if (event.kind == Kind::dropped)
    put_notice(
        fmt::format("the context of {} tokens is full: the {} oldest messages are dropped from "
                    "the conversation, and the others are read again",
                    speaker_.engine().context_length(), event.count));
  if (event.kind == Kind::prompt && interactive_) editor_.hold_typing();
  if (event.kind == Kind::generated && flags_.json.lines) put_event("text", {{"text", event.text}});
  if (!flags_.json.any()) view.take(event);
  if (event.kind != Kind::generated) return;
  editor_.keep_holding();
  if (view.repeats())
    put_notice(
        "the answer repeats itself: Ctrl-C stops it, --dry-multiplier 0.8 makes models avoid it "
        "(in a chat: /set dry-multiplier 0.8)");
}

void Chat::show_answer(Answer answer, AnswerView& view) {
  GenerateResult& result = answer.result;
  const bool json = flags_.json.any();
  if (!json) view.end(answer.calls.empty() || answer.damaged);
  thought_ = json ? "" : answer.thought;
  if (answer.cut_call && result.finish == Finish::interrupted)
    put_notice("interrupted in a tool call, which stays as text: /undo or /retry removes it");
  else
    for (const std::string& fault : answer.faults) put_notice(fault);
  if (answer.cut_call && (result.finish == Finish::length || result.finish == Finish::full))
    result.complete = false;
  if (json) {
    result.text = answer.content;
    JsonValue object =
        result_json(speaker_.engine(), result, measured_bandwidth(speaker_.engine(), result),
                    speaker_.options.sampling.seed);
    object["tool_calls"] = calls_json(answer.calls);
    flags_.json.put_result(object);
  } else if (!interactive_ && !answer.calls.empty()) {
    put(calls_json(answer.calls).dump() + "\n");
  }
  report_end(result);
}

void Chat::report_end(const GenerateResult& result) {
  if (interactive_ && result.finish == Finish::full)
    put_notice(fmt::format(
        "the context of {} tokens is full, the answer ends here: /set context-policy shift and "
        "/retry drop old messages, /clear starts a new conversation",
        speaker_.engine().context_length()));
  // In a terminal the state line says that -n or a --stop text ended the answer.
  if (!interactive_ || speaker_.is_incomplete(result)) speaker_.put_cuts({&result, 1});
  const bool timed = flags_.generation.verbose();
  if (!interactive_ && !timed && !flags_.json.any() && speaker_.is_stopped(result) &&
      !speaker_.is_incomplete(result))
    put_notice(fmt::format("the answer {}", why_it_ended(result.finish)));
  if (!interactive_ && status_ == 0 && speaker_.is_incomplete(result))
    status_ = int(Exit::incomplete);
  total_.add(result);
  if (!timed) {
    if (interactive_) put_state(state_line(result));
    if (!interactive_ && result.finish == Finish::interrupted && result.tokens.empty())
      put_notice(fmt::format("interrupted before the answer began: {} of the prompt's {} are read",
                             result.known_tokens,
                             counted(uint64_t(result.prompt_tokens), "token")));
    else if (!interactive_ && !flags_.json.any() && result.finish == Finish::interrupted)
      put_notice(fmt::format("the answer is interrupted after {}",
                             counted(result.tokens.size(), "token")));
    return;
  }
  put_summary(timing_line(result, measured_bandwidth(speaker_.engine(), result),
                          speaker_.options.sampling.seed, true) +
              threads_part(speaker_.engine()) + experts_part(speaker_.engine()));
}

std::string Chat::state_line(const GenerateResult& result) const {
  size_t tokens = size_t(result.prompt_tokens) + result.tokens.size();
  try {
    tokens = conversation_.tokens().size();
  } catch (const Error&) {  // the template refuses the conversation: the next question reports it
  }
  std::string line = of_context(tokens);
  if (result.known_tokens < result.prompt_tokens)
    return fmt::format("{}; {}; {} of the prompt's {} were read", line, why_it_ended(result.finish),
                       result.known_tokens - result.cached_tokens,
                       counted(uint64_t(result.prompt_tokens - result.cached_tokens), "new token"));
  if (result.decode_rate() > 0) line += fmt::format("; {:.1f} tok/s", result.decode_rate());
  const bool says_why = result.finish == Finish::length || result.finish == Finish::interrupted ||
                        speaker_.is_stopped(result);
  return line + (says_why ? fmt::format("; {}", why_it_ended(result.finish)) : "");
}

std::string Chat::of_context(size_t tokens) const {
  const size_t context = size_t(speaker_.engine().context_length());
  return fmt::format("{} of {} tokens{}", std::min(tokens, context), context,
                     tokens > context ? fmt::format(" (the conversation has {})", tokens) : "");
}

void Chat::Total::add(const GenerateResult& r) {
  ++answers;
  read += uint64_t(r.known_tokens - r.cached_tokens), cached += uint64_t(r.cached_tokens);
  if (r.prompt_seconds > 0) timed += uint64_t(r.known_tokens - r.cached_tokens);
  written += r.tokens.size(), drafted += uint64_t(r.drafted), accepted += uint64_t(r.accepted);
  prompt_seconds += r.prompt_seconds, decode_seconds += r.decode_seconds;
}

namespace {

constexpr const char* kFirstModel = "chaski chat -m smollm2";

int chat(ChatFlags& flags) {
  flags.generation.resolve_config_conflicts();
  flags.generation.check();
  if (flags.lines && stdin_is_terminal())
    fail(Exit::usage, "--lines reads questions from a pipe, found a terminal");
  if (flags.json.whole && (flags.lines || flags.interactive()))
    fail(Exit::usage, "--json prints one answer, expected -p TEXT, or --jsonl with --lines");
  if (flags.json.lines && flags.interactive())
    fail(Exit::usage, "--jsonl is for scripts, expected -p TEXT or --lines");
  if (!flags.generation.answer_cache.empty() && flags.interactive()) {
    put_notice("--answer-cache has no effect in a conversation, expected -p TEXT or --lines");
    flags.generation.answer_cache.clear();
  }
  flags.tools.read();
  flags.format = template_of(flags.chat_template);
  flags.generation.choose_seed();
  std::optional<std::string> question;
  if (!flags.interactive() && !flags.lines) question = whole_question(flags);
  choose_saved_model(flags);
  Chat chat(flags);
  if (flags.generation.model.engine.model.empty())
    put_notice(
        "the built-in model only tells stories; this command gets one that answers questions: " +
        std::string(kFirstModel));
  chat.begin();
  return question ? chat.answer_once(*question) : chat.talk();
}

}  // namespace

Action declare_chat(Flags parser) {
  auto flags = std::make_shared<ChatFlags>();
  flags->generation.declare(parser);
  flags->generation.declare_answer_cache(parser);
  GenerationFlags some;
  for (const std::string& name : names_of_flags([&](Flags& all) { some.declare_settings(all); }))
    flags->settings.push_back(parser.named(("--" + name).c_str()));
  flags->system_flag =
      parser.add("--system", flags->system, "the system message: instructions for the model")
          .notes_if_repeated()
          .type("TEXT");
  flags->model_flag = parser.named("--model"), flags->hub_flag = parser.named("--hub");
  parser
      .add("--resume", flags->resume,
           "continue a conversation saved with /save; without -m, with the model that it was saved "
           "with")
      .not_empty("a file")
      .type("FILE");
  declare_chat_template(parser, flags->chat_template);
  flags->question.declare(parser);
  flags->question.text_flag.help("ask one question, print its answer and exit");
  flags->question.file_flag.help(
      "read the question from FILE, after the text of -p; -: from standard input. Several are "
      "joined. Piped text is added after them, or is the question");
  flags->question.declare_pipe(parser);
  parser
      .add_switch("--lines", flags->lines,
                  "each line of a pipe is a question or a slash command. After one that fails the "
                  "next line follows; the exit status is that of the first")
      .excludes(flags->question.text_flag)
      .excludes(flags->question.file_flag);
  flags->tools.declare(parser);
  for (const char* other : {"--grammar", "--json-schema", "--regex"})
    parser.named("--tools").excludes(parser.named(other));
  declare_json(parser, flags->json);
  parser
      .add("--think", flags->think,
           "auto: hide thinking on a terminal and say so, print it elsewhere; show: print it, dim "
           "on a terminal; hide; off: ask the model not to think (default auto)")
      .one_of({"auto", "show", "hide", "off"})
      .type("HOW");
  parser.add_switch("--no-word-wrap", flags->no_word_wrap,
                    "break lines at the edge of the terminal, not between words");
  parser.named("--json").help(kJsonOfText);
  parser.add_switch("--no-history", flags->no_history,
                    "do not keep typed messages for later chats");
  parser.table({"Commands of a conversation", Chat::manual()});
  parser.example("A conversation; /help lists its commands",
                 "chaski chat -m model.gguf --system \"Be brief.\"");
  parser.example("One question", "chaski chat -m model.gguf -p \"What is a relay?\" -n 100");
  parser.example("A question about a text",
                 "cat letter.txt | chaski chat -m model.gguf -p \"Sum this up:\" -n 100");
  return [flags] { return chat(*flags); };
}

}  // namespace chaski
