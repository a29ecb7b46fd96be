// chaski chat: a conversation in the terminal; one question and its answer where -p or a pipe asks
// it; or, with --lines, a question in each line of a pipe. A message of several lines stands
// between two """, has a backslash at the end of a line, or is pasted. stdout carries the answers.
// With --tools an answer may call functions: it is shown, and what they give is the next line.
// Nothing of a conversation is dropped silently: when it no longer fits the context, chat says so
// and waits for /clear or /undo, or, with --context-policy, says what it drops.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "engine/conversation/conversation_file.h"
#include "engine/conversation/own_template.h"
#include "engine/machine/cache_folder.h"
#include "engine/shelf/inspection.h"  // for likely_name()
#include "main/commands/speaker.h"
#include "main/commands/tool_use.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/answer_view.h"
#include "main/terminal/json_output.h"
#include "main/terminal/line_editor.h"
#include "main/terminal/output.h"
#include "main/terminal/signals.h"
#include "main/terminal/timing.h"

namespace chaski {

namespace {

constexpr const char* kStates = ".kv";  // ends the name of a file beside a conversation
const std::vector<std::string> kThinkModes = {"auto", "show", "hide"};  // of /think
constexpr std::string_view kBlock = "\"\"\"", kSpace = " \t\r\n";

struct ChatFlags {
  GenerationFlags generation;
  PromptFlags question;
  ToolUse tools;
  std::string system, resume, think = "auto";
  Flag system_flag;
  std::vector<Flag> settings;  // that /set knows too
  JsonForm json;
  bool lines = false, no_word_wrap = false, no_history = false;

  // Somebody sits there and types.
  bool talks() const { return stdin_is_terminal() && !question.given(); }
};

// What -p or -f says, and behind it what comes through a pipe.
std::string whole_question(const ChatFlags& flags) {
  std::string text = flags.question.typed().value_or("");
  std::string piped = stdin_is_terminal() ? "" : read_text("");
  piped.erase(piped.find_last_not_of("\r\n") + 1);
  text += (text.empty() || piped.empty() ? "" : "\n\n") + piped;
  if (text.find_first_not_of(kSpace) == std::string::npos)
    fail(Exit::usage, "no question given, expected -p TEXT, -f FILE or text on standard input");
  return text;
}

// Where the lines that were typed are kept; empty: nowhere.
std::string history_file(const ChatFlags& flags) {
  const std::string folder = state_folder();
  return flags.no_history || !flags.talks() || folder.empty() ? "" : folder + "/history";
}

class Chat {
 public:
  explicit Chat(ChatFlags& flags)
      : flags_(flags),
        tools_(flags.tools),
        speaker_(flags.generation),
        settings_(flags.generation),
        format_(ChatTemplate::detect(speaker_.engine->meta(), speaker_.engine->tokenizer(),
                                     flags.think != "off", tools_.tools())),
        talks_(flags.talks()),
        interruption_(talks_        ? Interruption::Scope::answer
                      : flags.lines ? Interruption::Scope::nothing
                                    : Interruption::Scope::program),
        editor_(interruption_, history_file(flags),
                [this](const std::string& begun) { return completions(begun); }),
        system_(flags.system),
        think_(flags.think) {
    for (const std::string& text : format_.stop_strings()) speaker_.options.stop.push_back(text);
    speaker_.options.interrupt = &interruption_.requested();
    speaker_.shows_reading = !flags.json.any();
    tools_.begin(format_, *speaker_.engine);
    speaker_.options.spelled = tools_.spelled();
    clear("");
  }

  void begin() {
    if (!format_.notice().empty()) put_notice(format_.notice());
    if (format_.own() && !format_.own()->takes_system() && !flags_.system.empty())
      put_notice(
          "the chat template has no place for a system message: it stands in front of the "
          "first question");
    if (flags_.think == "off" && !(format_.own() && format_.own()->thinking_can_be_off()))
      put_notice("the chat template has no switch for thoughts: --think hide leaves them out");
    if (flags_.resume.empty()) return;
    load(flags_.resume);
    // What is typed now wins over what the conversation began with.
    if (flags_.system_flag.typed() && !flags_.system.empty() && flags_.system != system_)
      set_system(flags_.system);
  }

  // One question alone.
  int answer(const std::string& question) {
    ask(question);
    if (interruption_.signal() != 0) end_by_signal(interruption_.signal());
    return int(Exit::done);
  }

  // Until the end of the input.
  int talk() {
    if (talks_) put_summary("/help lists the commands");
    bool leaves = false;  // the next Ctrl-C, if nothing comes between
    while (!over_) {
      interruption_.reset();
      const Message message = read();
      if (message.result == LineEditor::Result::end) break;
      const bool dropped = message.result == LineEditor::Result::interrupted;
      if (dropped)
        edits_ = false;
      else
        take(message);
      const bool empty = dropped && message.text.empty();
      if (empty && leaves) break;
      if (dropped) put_note(empty ? "^C (again, /quit or Ctrl-D ends the chat)" : "^C");
      leaves = empty;
    }
    if (talks_ && !over_) put_note("");
    return status_;
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
  Message read(const std::string& prompt = "> ") {
    Message out;
    out.result = editor_.read(prompt.c_str(), out.text);
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
    const bool edits = std::exchange(edits_, false);
    if (text.find_first_not_of(kSpace) == std::string::npos) return;
    if (!message.one_line || text[0] != '/') {
      if (edits) drop_question();
      return ask(text);
    }
    const size_t space = std::min(text.find(' '), text.size());
    const std::string name = text.substr(0, space);
    const size_t begin = text.find_first_not_of(' ', space);
    std::string argument = begin == std::string::npos ? "" : text.substr(begin);
    argument.erase(argument.find_last_not_of(' ') + 1);  // Tab leaves one behind a word
    for (const Command& command : commands()) {
      if (name != command.name) continue;
      if (!argument.empty() && !*command.argument)
        return refuse_command(Exit::usage,
                              fmt::format("{} stands alone, found \"{}\"", name, argument));
      try {
        return (this->*command.run)(argument);
      } catch (const Error& error) {
        return refuse_command(error.code, error.what());
      }
    }
    const std::string likely = likely_name(name, names_of_commands());
    refuse_command(
        Exit::usage,
        fmt::format("{} is no command, {}", name,
                    likely.empty() ? "/help lists them" : fmt::format("did you mean {}?", likely)));
  }

  // The first that fails is what a script learns of; who talks has seen it.
  void refuse_command(Exit code, const std::string& line) {
    put_error(line);
    if (!talks_ && status_ == 0) status_ = int(code);
  }

  static std::vector<std::string> names_of_commands() {
    std::vector<std::string> names;
    for (const Command& command : commands()) names.emplace_back(command.name);
    return names;
  }

  // How a command may go on, and what stands behind it.
  std::vector<LineEditor::Completion> completions(const std::string& begun) {
    std::vector<LineEditor::Completion> all;
    const size_t space = begun.find(' ');
    const auto offer = [&](const std::string& front, const std::vector<std::string>& names) {
      for (const std::string& name : names)
        if ((front + name).starts_with(begun)) all.push_back({front + name + " ", name});
    };
    if (space == std::string::npos) {
      offer("", names_of_commands());
      return all;
    }
    const std::string front = begun.substr(0, space + 1);
    for (const Command& command : commands()) {
      if (begun.substr(0, space) != command.name) continue;
      const std::string_view argument = command.argument;
      if (argument == "FILE") all = completions_of_files(front, begun.substr(space + 1));
      if (argument == "[HOW]") offer(front, kThinkModes);
      GenerationFlags settings = settings_;
      if (argument.starts_with("NAME"))
        offer(front, names_of_flags([&](Flags& flags) { settings.declare_settings(flags); }));
    }
    std::erase_if(all, [](const auto& one) { return one.line.ends_with(kStates); });
    return all;
  }

  void help(const std::string&) {
    for (const Command& command : commands())
      put_note(fmt::format("{:<16} {}", fmt::format("{} {}", command.name, command.argument),
                           command.help));
    put_note("\"\"\"              begins and ends a message of several lines; so does a paste");
    put_note("\\                at the end of a line, or Alt-Enter: the message goes on");
    put_note("Tab              completes commands, files, settings");
    put_note("Ctrl-C           stop the answer; at the prompt: drop the line; twice: end");
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
    if (talks_) put_note("the system message is set");
  }

  // The last question with all behind it.
  std::string take_back() {
    const auto last = last_question();
    if (last == messages_.end()) fail(Exit::usage, "there is no question yet");
    const std::string question = last->content;
    messages_.erase(last, messages_.end());
    return question;
  }

  std::vector<ChatMessage>::iterator last_question() {
    const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                   [](const ChatMessage& m) { return m.role == "user"; });
    return last == messages_.rend() ? messages_.end() : last.base() - 1;
  }
  // With the calls behind it and what they gave.
  void drop_question() { messages_.erase(last_question(), messages_.end()); }

  void undo(const std::string&) {
    const std::string question = take_back();
    put_note("taken back: " + question.substr(0, question.find('\n')));
  }

  // The same seed would draw the same answer.
  void retry(const std::string&) {
    const std::string question = take_back();
    set_here_["seed"] = std::to_string(++settings_.generate.sampling.seed);
    speaker_.set(settings_.generate);
    ask(question);
  }

  // The last question again, in the line that is typed next: if that is sent, it takes the place of
  // the old one and its answer.
  void edit(const std::string&) {
    const auto last = last_question();
    if (last == messages_.end()) fail(Exit::usage, "there is no question yet");
    edits_ = true;
    editor_.suggest(last->content);
  }

  // "temp 0.5", as the flags of the command line have it. ollama's "parameter" may stand in front.
  void set(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    if (!words.empty() && words[0] == "parameter") words.erase(words.begin());
    if (words.size() == 1 && (words[0] == "think" || words[0] == "nothink"))
      fail(Exit::usage, "/set {}: /think {} does that", words[0],
           words[0] == "think" ? "show" : "hide");
    if (words.size() != 2)
      fail(Exit::usage, "/set expects a name and a value, such as /set temp 0.5; /show lists them");
    words[0] = (words[0].starts_with('-') ? "" : words[0].size() == 1 ? "-" : "--") + words[0];
    if (words[0] == "--system") fail(Exit::usage, "/set system: /system TEXT does that");
    for (const std::string& name : change_settings(words)) set_here_[name] = words[1];
    show_settings();
  }

  // By words as the command line has them. Returns the names that are set.
  std::vector<std::string> change_settings(const std::vector<std::string>& words) {
    GenerationFlags settings = settings_;
    std::vector<std::string> names;
    try {
      names = read_flags("/set", words, [&](Flags& flags) { settings.declare_settings(flags); });
      settings.check();
      if (std::ranges::count(names, "seed") > 0) settings.choose_seed();
      const Sampler expected(settings.generate.sampling, &speaker_.engine->tokenizer());
    } catch (const Error& error) {  // here nobody types dashes
      const std::string line = error.what();
      throw Error(error.code, line.substr(std::min(line.find_first_not_of('-'), line.size())));
    }
    settings_ = settings;
    speaker_.set(settings_.generate);
    return names;
  }

  // Those that were kept with a conversation, but for what the command line says now.
  void take_settings(Settings kept, const std::string& path) {
    std::vector<std::string> words;
    for (const Flag& flag : flags_.settings)
      if (flag.typed()) kept.erase(flag.name().substr(2));
    for (const auto& [name, value] : kept) words.push_back("--" + name), words.push_back(value);
    if (words.empty()) return;
    try {
      change_settings(words);
    } catch (const Error& error) {
      return put_notice(fmt::format("{}: its settings are left out: {}", path, error.what()));
    }
    for (const auto& [name, value] : kept) set_here_[name] = value;
    put_state("set there: " + text_of(kept));
  }

  static std::string text_of(const Settings& settings) {
    std::string text;
    for (const auto& [name, value] : settings)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    return text;
  }

  void show_settings() {
    const SamplerOptions& s = speaker_.options.sampling;
    const int tokens = speaker_.options.max_tokens;
    put_note(
        fmt::format("settings: temp {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}, seed "
                    "{}, tokens {}",
                    s.temperature, s.top_k, s.top_p, s.min_p, s.penalties.repeat, s.seed,
                    tokens < 0 ? "until the model ends" : std::to_string(tokens)));
    if (!set_here_.empty()) put_note("set here: " + text_of(set_here_));
  }

  void show(const std::string&) {
    const Engine& engine = *speaker_.engine;
    put_note(fmt::format("model:    {}, on {}", engine.path(), engine.device()));
    put_note(fmt::format("template: {}", format_.own()
                                             ? "the file's own"
                                             : "the format of " + std::string(format_.name())));
    put_note(fmt::format("system:   {}", has_system() ? messages_[0].content : "none"));
    if (tools_.given())
      put_note(fmt::format("tools:    {}", fmt::join(tools_.tools().names(), ", ")));
    show_settings();
    put_note("context:  " + of_context(tokens_so_far()));
  }

  void stats(const std::string&) {
    put_note(fmt::format("{}; {} read, {:.0f} tok/s, {} known before",
                         counted(total_.answers, "answer"), counted(total_.read, "token"),
                         rate(total_.timed, total_.prompt_seconds), total_.cached));
    put_note(fmt::format("{} written, {:.1f} tok/s{}", counted(total_.written, "token"),
                         rate(total_.written, total_.decode_seconds),
                         total_.drafted == 0 ? ""
                                             : fmt::format("; {} of {} guesses right",
                                                           total_.accepted, total_.drafted)));
  }

  static double rate(uint64_t tokens, double seconds) {
    return seconds > 0 ? double(tokens) / seconds : 0;
  }

  void copy(const std::string&) {
    const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                   [](const ChatMessage& m) { return m.role == "assistant"; });
    if (last == messages_.rend()) fail(Exit::usage, "there is no answer yet");
    if (!stdout_is_terminal()) fail(Exit::usage, "/copy needs a terminal");
    put_to_clipboard(last->content);
    put_note(fmt::format("{} handed to the terminal's clipboard",
                         counted(last->content.size(), "byte")));
  }

  // What /save wrote, or another program in the same words.
  static Conversation conversation_at(const std::string& path) {
    try {
      return read_conversation(path);
    } catch (const Error& error) {
      const std::string line = error.what();
      if (error.code != Exit::bad_file) throw;
      fail(error.code, "{}: is no conversation that /save wrote{}", path,
           line.starts_with(path) ? line.substr(path.size()) : ": " + line);
    }
  }

  // A name may be mistyped, and neither a model nor another talk is to be lost by that.
  void expect_no_other_file(const std::string& path) const {
    std::error_code none;
    if (!std::filesystem::exists(path, none) || files_.contains(path)) return;
    std::vector<ChatMessage> there;
    try {
      there = read_conversation(path).messages;
    } catch (const Error&) {
      fail(Exit::usage, "{}: is there and holds no conversation, expected another name", path);
    }
    const auto same = [](const ChatMessage& a, const ChatMessage& b) {
      return a.role == b.role && a.content == b.content;
    };
    if (there.size() > messages_.size() ||
        !std::equal(there.begin(), there.end(), messages_.begin(), same))
      fail(Exit::usage,
           "{}: holds another conversation, expected another name, or /load of it first", path);
  }

  // Keys and values lie beside the conversation, so that it goes on at once.
  static std::string states_file(const std::string& path) { return path + kStates; }

  void save(const std::string& path) {
    if (path.empty()) fail(Exit::usage, "/save expects a file");
    if (path.ends_with(kStates))
      fail(Exit::usage, "{}: ends as the keys and values beside a conversation, expected {}", path,
           path == kStates ? "a name in front of that"
                           : path.substr(0, path.size() - std::string_view(kStates).size()));
    expect_no_other_file(path);
    const std::string states = states_file(path);
    expect_saved_states(states);
    write_conversation(path, {messages_, set_here_});
    files_.insert(path);
    put_note(fmt::format("{} in {}", counted(messages_.size(), "message"), path));
    // Not what was taken back, cleared or thought.
    const std::vector<TokenId> said =
        messages_.empty() ? std::vector<TokenId>() : format_.render(messages_, false);
    const int tokens = speaker_.session->rewind(int(speaker_.session->common_prefix(said)));
    if (tokens == 0) {
      std::error_code none;
      std::filesystem::remove(states, none);
      return;
    }
    try {
      const uint64_t bytes = speaker_.session->save(states);
      put_note(fmt::format("keys and values of {} in {}, {:.3g} MB",
                           counted(uint64_t(tokens), "token"), states, double(bytes) / 1e6));
    } catch (const Error& error) {
      put_notice(std::string(error.what()) + ": the text will be read again");
    }
  }

  void load(const std::string& path) {
    if (path.empty()) fail(Exit::usage, "/load expects a file");
    if (Session::is_saved(path))
      fail(Exit::usage,
           "{}: holds keys and values, expected the conversation that they belong to{}", path,
           path.ends_with(kStates)
               ? ", " + path.substr(0, path.size() - std::string_view(kStates).size())
               : "");
    Conversation kept = conversation_at(path);
    messages_ = std::move(kept.messages);
    files_.insert(path);
    system_ = has_system() ? messages_[0].content : "";
    put_state(fmt::format("{} from {}", counted(messages_.size(), "message"), path));
    if (!std::exchange(set_here_, {}).empty()) {  // those of the conversation before
      settings_ = flags_.generation;
      speaker_.set(settings_.generate);
    }
    take_settings(kept.settings, path);
    if (std::error_code none; !std::filesystem::exists(states_file(path), none)) return;
    try {
      speaker_.session->restore(states_file(path));
      put_state(fmt::format("keys and values of {} from {}",
                            counted(speaker_.session->tokens().size(), "token"),
                            states_file(path)));
    } catch (const Error& error) {
      put_notice(std::string(error.what()) + ": the text is read again");
    }
  }

  void think(const std::string& how) {
    if (std::ranges::count(kThinkModes, how) > 0) {
      think_ = how;
      return put_note("thoughts: " + think_);
    }
    if (!how.empty()) fail(Exit::usage, "/think stands alone, or before auto, show or hide");
    if (thought_.empty()) fail(Exit::usage, "there is no thought yet");
    put(stdout_is_terminal() ? dimmed(safe_for_terminal(thought_)) : thought_);
    put("\n");
  }

  std::string of_context(size_t tokens) const {
    const size_t context = size_t(speaker_.engine->context_length());
    return fmt::format("{} of {} tokens{}", std::min(tokens, context), context,
                       tokens > context ? fmt::format(" (the conversation has {})", tokens) : "");
  }
  // Of the conversation as it stands.
  size_t tokens_so_far() const {
    return messages_.empty() ? 0 : format_.render(messages_, false).size();
  }
  void count_tokens(const std::string&) { put_note(of_context(tokens_so_far())); }

  void ask(const std::string& question) {
    messages_.push_back({"user", question});
    for (bool first = true; reply(first) && take_results(); first = false) {
    }
  }

  // The answer to the conversation as it stands; whether it calls tools that somebody here may use.
  // If there is no answer, the question is taken back, so that the conversation stays as it was.
  bool reply(bool to_question) {
    std::vector<TokenId> prompt;
    try {
      prompt = rendered();
    } catch (const Error& error) {  // the template's own words
      drop_question();
      if (!talks_) throw;
      put_error(error.what());
      return false;
    }
    const int whole = int(prompt.size());
    if (whole >= speaker_.engine->context_length() && !drop_turns(prompt)) {
      refuse(whole);
      return false;
    }
    keep_system(prompt);
    if (talks_) editor_.let_wait();
    const ToolSyntax* const syntax = tools_.syntax();
    const bool forced = to_question && tools_.forced();
    GenerateOptions options = speaker_.options;
    std::string text;
    if (forced) {
      options.grammar = tools_.forced();
      text = syntax->opens;
      const auto opens = speaker_.engine->tokenizer().encode_with_control(text);
      prompt.insert(prompt.end(), opens.begin(), opens.end());
    }
    const AnswerView::Shown thoughts = think_ == "hide"   ? AnswerView::Shown::nothing
                                       : think_ == "auto" ? AnswerView::Shown::folded
                                                          : AnswerView::Shown::all;
    AnswerView view({thoughts, !flags_.no_word_wrap, syntax ? syntax->begins : std::string_view(),
                     syntax && syntax->bare},
                    begins_thought(prompt));
    if (!flags_.json.any()) view.push(text);
    GenerateResult result;
    try {
      result = speaker_.answer(prompt, options, [&](std::string_view part) {
        if (flags_.json.lines) put_event("text", {{"text", part}});
        if (!flags_.json.any()) view.push(part);
        editor_.keep_waiting();
        if (view.repeats())
          put_notice(
              "the answer says the same over and over: Ctrl-C stops it, --dry-multiplier 0.8 keeps "
              "models from it (here: /set dry-multiplier 0.8)");
      });
    } catch (const Error& error) {  // a conversation is not lost by one answer
      if (!talks_ || error.code == Exit::io) throw;
      drop_question();
      put_error(error.what());
      return false;
    }
    text += result.text;
    if (forced && result.finish == Finish::end) text += syntax->closes;
    return take_answer(std::move(text), std::move(result), view);
  }

  // What was generated goes into the conversation, and its calls to whoever reads them.
  bool take_answer(std::string text, GenerateResult result, AnswerView& view) {
    ToolAnswer answer{text, {}, {}, false};
    if (tools_.syntax())
      answer = read_answer(*tools_.syntax(), tools_.tools(), text, calls_so_far());
    if (answer.calls.empty()) answer.content = text;
    const bool nothing = talks_ && result.finish == Finish::interrupted && text.empty();
    if (!flags_.json.any() && !nothing) view.end(answer.calls.empty() || answer.damaged);
    thought_ = view.thought();
    for (const std::string& fault : answer.faults) put_notice(fault);
    messages_.push_back({"assistant", answer.content, answer.calls});
    if (flags_.json.any()) {
      result.text = answer.content;
      JsonValue json =
          result_json(*speaker_.engine, result, bandwidth_beside(*speaker_.engine, result),
                      speaker_.options.sampling.seed);
      json["tool_calls"] = calls_json(answer.calls);
      flags_.json.put_result(json);
    } else if (!talks_ && !answer.calls.empty()) {
      put(calls_json(answer.calls).dump() + "\n");
    }
    say_how_it_ended(result);
    if (nothing) put_notice("there is no answer yet: the question stays, /undo takes it back");
    return !answer.calls.empty() && (talks_ || flags_.lines);
  }

  size_t calls_so_far() const {
    size_t calls = 0;
    for (const ChatMessage& m : messages_) calls += m.calls.size();
    return calls;
  }

  // What the functions gave that the last answer calls, a line or a paste for each. Without it
  // there is nothing to go on with.
  bool take_results() {
    const std::vector<ToolCall> calls = messages_.back().calls;
    for (const ToolCall& call : calls) {
      interruption_.reset();
      if (talks_)
        put(
            fmt::format("call {} {}\n(the next line or paste is what it gives, Ctrl-C takes the "
                        "question back)\n",
                        escaped(call.name), escaped(call.arguments)));
      const Message given = read(fmt::format("{} gives> ", escaped(call.name)));
      if (given.result != LineEditor::Result::line) {
        drop_question();
        over_ = given.result == LineEditor::Result::end;
        put_note("no result: the question is taken back, and its calls");
        return false;
      }
      messages_.push_back({"tool", given.text, {}, call.id, call.name});
    }
    interruption_.reset();
    return true;
  }

  std::vector<TokenId> rendered() {
    std::optional<size_t> rewritten;
    std::vector<TokenId> prompt = format_.render(messages_, true, &rewritten);
    if (rewritten) say_what_is_rewritten(*rewritten);
    return prompt;
  }

  // Whether the template lets every answer begin with a thought.
  bool begins_thought(std::span<const TokenId> prompt) const {
    std::string end;
    for (const TokenId token : prompt.last(std::min<size_t>(prompt.size(), 8)))
      end += speaker_.engine->tokenizer().raw(token);
    return end.find("<think>") != std::string::npos && end.find("</think>") == std::string::npos;
  }

  // Once: a template that does so to one answer does it to all.
  void say_what_is_rewritten(size_t answer) {
    if (std::exchange(said_rewritten_, true)) return;
    const auto turn = std::count_if(messages_.begin(), messages_.begin() + ptrdiff_t(answer),
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

  // In a pipe nobody is there to type /clear.
  void refuse(int tokens) {
    drop_question();
    if (speaker_.options.context_policy != ContextPolicy::stop) {
      const std::string long_one = fmt::format(
          "this message alone has no room in the context of {} tokens, expected a shorter one or a "
          "larger --ctx",
          speaker_.engine->context_length());
      if (!talks_) throw Error(Exit::prompt_too_long, long_one);
      return put_error(long_one);
    }
    const std::string line = fmt::format(
        "the conversation with this question has {} tokens, the context holds {}, and an answer "
        "needs room: --ctx N for more where the model has it, or --context-policy shift",
        tokens, speaker_.engine->context_length());
    if (!talks_) throw Error(Exit::prompt_too_long, line);
    put_error(line +
              "; the question is dropped: /undo takes back the one before, /clear starts anew");
  }

  void say_how_it_ended(const GenerateResult& result) {
    if (result.finish == Finish::full)
      put_notice(
          fmt::format("the context of {} tokens is full, the answer ends here: /clear starts anew",
                      speaker_.engine->context_length()));
    if (result.finish == Finish::length && !talks_ && flags_.generation.has_grammar())
      put_notice(fmt::format("the text is not whole: it ended at the {} of -n",
                             counted(result.tokens.size(), "token")));
    total_.add(result);
    if (!flags_.generation.verbose()) {
      if (talks_) put_state(state_line(result));
      if (!talks_ && result.finish == Finish::interrupted && result.tokens.empty())
        put_notice(
            fmt::format("interrupted before the answer began: {} of the prompt's {} are read",
                        result.known_tokens, counted(uint64_t(result.prompt_tokens), "token")));
      return;
    }
    put_summary(timing_line(result, bandwidth_beside(*speaker_.engine, result),
                            speaker_.options.sampling.seed, true) +
                threads_part(*speaker_.engine));
  }

  std::string state_line(const GenerateResult& result) const {
    size_t tokens = size_t(result.prompt_tokens) + result.tokens.size();
    try {
      tokens = tokens_so_far();
    } catch (const Error&) {  // the next question will say it
    }
    const std::string line = of_context(tokens) + "; ";
    if (result.known_tokens < result.prompt_tokens)
      return line +
             fmt::format("{} are known; {}", result.known_tokens, why_it_ended(result.finish));
    const bool says_why = result.finish == Finish::length || result.finish == Finish::interrupted;
    return line + fmt::format("{:.1f} tok/s", result.decode_rate()) +
           (says_why ? fmt::format("; {}", why_it_ended(result.finish)) : "");
  }

  // Of all answers.
  struct Total {
    uint64_t answers = 0, read = 0, cached = 0, written = 0, drafted = 0, accepted = 0;
    uint64_t timed = 0;  // of what was read: where the prompt was not left
    double prompt_seconds = 0, decode_seconds = 0;

    void add(const GenerateResult& r) {
      ++answers;
      read += uint64_t(r.known_tokens - r.cached_tokens), cached += uint64_t(r.cached_tokens);
      if (r.prompt_seconds > 0) timed += uint64_t(r.known_tokens - r.cached_tokens);
      written += r.tokens.size(), drafted += uint64_t(r.drafted), accepted += uint64_t(r.accepted);
      prompt_seconds += r.prompt_seconds, decode_seconds += r.decode_seconds;
    }
  };

  const ChatFlags& flags_;
  ToolUse& tools_;
  Speaker speaker_;
  GenerationFlags settings_;  // the flags, and what /set made of them
  ChatTemplate format_;
  const bool talks_;
  Interruption interruption_;
  LineEditor editor_;
  std::string system_, think_, thought_;  // thought_: of the last answer
  std::vector<ChatMessage> messages_;
  Total total_;
  std::set<std::string> files_;  // loaded or saved here
  bool edits_ = false;           // the next question takes the place of the last one
  Settings set_here_;            // by /set, or kept with the conversation
  bool said_rewritten_ = false, over_ = false;
  int status_ = 0;  // of the program

  static std::span<const Command> commands();
};

std::span<const Chat::Command> Chat::commands() {
  static constexpr Command kAll[] = {
      {"/help", "", "this list", &Chat::help},
      {"/system", "TEXT", "what the model is told before the conversation", &Chat::set_system},
      {"/clear", "", "forget the conversation", &Chat::clear},
      {"/undo", "", "take back the last question and its answer", &Chat::undo},
      {"/retry", "", "another answer to the last question", &Chat::retry},
      {"/edit", "", "the last question again, to be changed", &Chat::edit},
      {"/save", "FILE", "keep the conversation; FILE.kv: what a model knows of it", &Chat::save},
      {"/load", "FILE", "go on with a conversation that was kept", &Chat::load},
      {"/set", "NAME VALUE", "a setting from now on, as the flags have it: /set temp 0.5",
       &Chat::set},
      {"/show", "", "model, template, system message and settings", &Chat::show},
      {"/tokens", "", "how much of the context is used", &Chat::count_tokens},
      {"/stats", "", "what was read and written so far, and how fast", &Chat::stats},
      {"/think", "[HOW]", "what the last answer thought; auto, show or hide: from now on",
       &Chat::think},
      {"/copy", "", "the last answer to the clipboard", &Chat::copy},
      {"/quit", "", "end (or Ctrl-D)", &Chat::quit},
      {"/bye", "", "the same", &Chat::quit},
      {"/exit", "", "the same", &Chat::quit},
      {"/?", "", "as /help", &Chat::help}};
  return kAll;
}

int chat(ChatFlags& flags) {
  flags.generation.give_way();
  flags.generation.check();
  if (flags.lines && stdin_is_terminal())
    fail(Exit::usage, "--lines reads questions from a pipe, found a terminal");
  if (flags.json.whole && (flags.lines || flags.talks()))
    fail(Exit::usage, "--json is one answer, expected -p TEXT, or --jsonl beside --lines");
  if (flags.json.lines && flags.talks())
    fail(Exit::usage, "--jsonl is for scripts, expected -p TEXT or --lines");
  if (!flags.generation.answer_cache.empty() && flags.talks()) {
    put_notice("--answer-cache has no effect in a conversation, expected -p TEXT or --lines");
    flags.generation.answer_cache.clear();
  }
  flags.tools.read();
  flags.generation.choose_seed();
  std::optional<std::string> question;
  if (!flags.talks() && !flags.lines) question = whole_question(flags);
  Chat chat(flags);
  chat.begin();
  return question ? chat.answer(*question) : chat.talk();
}

}  // namespace

Action declare_chat(Flags parser) {
  auto flags = std::make_shared<ChatFlags>();
  flags->generation.declare(parser);
  GenerationFlags some;
  for (const std::string& name : names_of_flags([&](Flags& all) { some.declare_settings(all); }))
    flags->settings.push_back(parser.named(("--" + name).c_str()));
  flags->system_flag =
      parser.add("--system", flags->system, "what the model is told before the conversation")
          .type("TEXT");
  parser.add("--resume", flags->resume, "go on with a conversation that /save kept")
      .not_empty("a file")
      .type("FILE");
  flags->question.declare(parser);
  flags->question.text_flag.help("one question: its answer is printed, and that is all");
  flags->question.file_flag.help(
      "a file with it; what comes through a pipe follows behind, or is the question");
  parser
      .add_switch(
          "--lines", flags->lines,
          "every line of a pipe is a question, or a command of the chat; the exit status is "
          "that of the first that fails")
      .excludes(flags->question.text_flag)
      .excludes(flags->question.file_flag);
  flags->tools.declare(parser);
  for (const char* other : {"--grammar", "--json-schema", "--regex"})
    parser.named("--tools").excludes(parser.named(other));
  declare_json(parser, flags->json);
  parser
      .add("--think", flags->think,
           "what the model thinks: auto: a line on a terminal says that it did, elsewhere it is "
           "shown; show it, dim on a terminal; hide it; off: the template is told that there is to "
           "be none (default auto)")
      .one_of({"auto", "show", "hide", "off"})
      .type("HOW");
  parser.add_switch("--no-word-wrap", flags->no_word_wrap,
                    "break lines at the terminal's edge, not between words");
  parser.named("--json").help(kJsonOfText);
  parser.add_switch("--no-history", flags->no_history,
                    "what is typed is not kept for the next chat");
  parser.example("A conversation, /help lists what can be said",
                 "chaski chat -m model.gguf --system \"Be brief.\"");
  parser.example("One question", "chaski chat -m model.gguf -p \"What is a relay?\" -n 100");
  parser.example("A question about a text",
                 "cat letter.txt | chaski chat -m model.gguf -p \"Sum this up:\" -n 100");
  return [flags] { return chat(*flags); };
}

}  // namespace chaski
