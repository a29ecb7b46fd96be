// The slash commands of chat.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include "engine/shelf/inspection.h"  // for likely_name()
#include "main/commands/chat.h"
#include "main/flags/options.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr std::string_view kStatesEnding = ".kv";  // FILE.kv has the KV cache of conversation FILE
const std::vector<std::string> kThinkModes = {"auto", "show", "hide"};  // of /think

std::string states_file(const std::string& path) { return path + std::string(kStatesEnding); }

std::string without_ending(const std::string& path) {
  return path.substr(0, path.size() - kStatesEnding.size());
}

std::string text_of(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

double rate(uint64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; }

}  // namespace

std::span<const Chat::Command> Chat::commands() {
  static constexpr Command kAll[] = {
      {"/help", "", "this list", &Chat::help},
      {"/system", "TEXT", "set the system message: instructions for the model", &Chat::set_system},
      {"/clear", "", "start a new conversation", &Chat::clear},
      {"/undo", "", "remove the last question and its answer", &Chat::undo},
      {"/retry", "", "generate another answer to the last question", &Chat::retry},
      {"/edit", "", "change the last question and ask it again", &Chat::edit},
      {"/save", "FILE", "save the conversation; its KV cache goes to FILE.kv", &Chat::save},
      {"/load", "FILE", "continue a saved conversation", &Chat::load},
      {"/set", "NAME VALUE", "change a setting; names are those of the flags: /set temp 0.5",
       &Chat::set},
      {"/show", "", "show model, template, system message and settings", &Chat::show},
      {"/tokens", "", "show how much of the context is used", &Chat::count_tokens},
      {"/stats", "", "show how many tokens were read and written, and how fast", &Chat::stats},
      {"/think", "[HOW]", "show the last thinking; auto, show or hide set how it is shown",
       &Chat::think},
      {"/copy", "", "copy the last answer to the clipboard", &Chat::copy},
      {"/quit", "", "end the chat (or Ctrl-D)", &Chat::quit},
      {"/bye", "", "the same", &Chat::quit},
      {"/exit", "", "the same", &Chat::quit},
      {"/?", "", "the same as /help", &Chat::help}};
  return kAll;
}

std::vector<std::string> Chat::names_of_commands() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return names;
}

void Chat::run_command(const std::string& line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  const size_t begin = line.find_first_not_of(' ', space);
  std::string argument = begin == std::string::npos ? "" : line.substr(begin);
  argument.erase(argument.find_last_not_of(' ') + 1);  // Tab adds a space after a word
  for (const Command& command : commands()) {
    if (name != command.name) continue;
    if (!argument.empty() && !*command.argument)
      return report_error(Exit::usage,
                          fmt::format("{} takes no argument, found \"{}\"", name, argument));
    try {
      return (this->*command.run)(argument);
    } catch (const Error& error) {
      return report_error(error.code, error.what());
    }
  }
  const std::string likely = likely_name(name, names_of_commands());
  report_error(Exit::usage, fmt::format("{} is not a command, {}", name,
                                        likely.empty() ? "/help lists the commands"
                                                       : fmt::format("did you mean {}?", likely)));
}

// What the typed beginning of a line can be completed to.
std::vector<LineEditor::Completion> Chat::completions(const std::string& typed) {
  std::vector<LineEditor::Completion> all;
  const size_t space = typed.find(' ');
  const auto offer = [&](const std::string& front, const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if ((front + name).starts_with(typed)) all.push_back({front + name + " ", name});
  };
  if (space == std::string::npos) {
    offer("", names_of_commands());
    return all;
  }
  const std::string front = typed.substr(0, space + 1);
  for (const Command& command : commands()) {
    if (typed.substr(0, space) != command.name) continue;
    const std::string_view argument = command.argument;
    if (argument == "FILE") all = completions_of_files(front, typed.substr(space + 1));
    if (argument == "[HOW]") offer(front, kThinkModes);
    GenerationFlags settings = settings_;
    if (argument.starts_with("NAME"))
      offer(front, names_of_flags([&](Flags& flags) { settings.declare_settings(flags); }));
  }
  std::erase_if(all, [](const auto& one) { return one.line.ends_with(kStatesEnding); });
  return all;
}

void Chat::help(const std::string&) {
  for (const Command& command : commands())
    put_note(fmt::format("{:<16} {}", fmt::format("{} {}", command.name, command.argument),
                         command.help));
  put_note("\"\"\"              begin and end a message of several lines; a paste does the same");
  put_note("\\                at the end of a line, or Alt-Enter: the message continues");
  put_note("Tab              complete commands, files and settings");
  put_note("Ctrl-C           stop the answer; at the prompt: drop the line; twice: end the chat");
}

void Chat::set_system(const std::string& text) {
  if (text.empty())
    return put_note(conversation_.has_system() ? conversation_.messages()[0].content
                                               : "there is no system message");
  conversation_.set_system(text);
  if (interactive_) put_note("the system message is set");
}

void Chat::undo(const std::string&) {
  const std::string question = conversation_.take_back();
  put_note("removed: " + question.substr(0, question.find('\n')));
}

// Changes the seed, because the same seed would draw the same answer.
void Chat::retry(const std::string&) {
  const std::string question = conversation_.take_back();
  changed_["seed"] = std::to_string(++settings_.generate.sampling.seed);
  speaker_.set(settings_.generate);
  ask(question);
}

// Puts the last question into the next line. If that line is sent, it replaces the question and its
// answer.
void Chat::edit(const std::string&) {
  const ChatMessage* const last = conversation_.last_question();
  if (!last) fail(Exit::usage, "there is no question yet");
  edits_ = true;
  editor_.suggest(last->content);
}

// "temp 0.5": a flag of the command line without its dashes. "parameter temp 0.5" works too, for
// users of ollama.
void Chat::set(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  if (!words.empty() && words[0] == "parameter") words.erase(words.begin());
  if (words.size() == 1 && (words[0] == "think" || words[0] == "nothink"))
    fail(Exit::usage, "/set {}: expected /think {}", words[0],
         words[0] == "think" ? "show" : "hide");
  if (words.size() != 2)
    fail(Exit::usage, "/set expects a name and a value, such as /set temp 0.5; /show lists them");
  words[0] = (words[0].starts_with('-') ? "" : words[0].size() == 1 ? "-" : "--") + words[0];
  if (words[0] == "--system") fail(Exit::usage, "/set system: expected /system TEXT");
  for (const std::string& name : change_settings(words)) changed_[name] = words[1];
  show_settings();
}

// Takes words of a command line. Returns the names of the settings that they set.
std::vector<std::string> Chat::change_settings(const std::vector<std::string>& words) {
  GenerationFlags settings = settings_;
  std::vector<std::string> names;
  try {
    names = read_flags("/set", words, [&](Flags& flags) { settings.declare_settings(flags); });
    settings.check();
    if (std::ranges::count(names, "seed") > 0) settings.choose_seed();
    const Sampler expected(settings.generate.sampling, &speaker_.engine->tokenizer());
  } catch (const Error& error) {  // the user typed the name without dashes
    const std::string line = error.what();
    throw Error(error.code, line.substr(std::min(line.find_first_not_of('-'), line.size())));
  }
  settings_ = settings;
  speaker_.set(settings_.generate);
  return names;
}

// Applies the settings of a saved conversation. Flags typed on the command line override them.
void Chat::take_settings(Settings saved, const std::string& path) {
  std::vector<std::string> words;
  for (const Flag& flag : flags_.settings)
    if (flag.typed()) saved.erase(flag.name().substr(2));
  for (const auto& [name, value] : saved) words.push_back("--" + name), words.push_back(value);
  if (words.empty()) return;
  try {
    change_settings(words);
  } catch (const Error& error) {
    return put_notice(fmt::format("{}: its settings are ignored: {}", path, error.what()));
  }
  for (const auto& [name, value] : saved) changed_[name] = value;
  put_state("settings of the file: " + text_of(saved));
}

void Chat::show_settings() {
  const SamplerOptions& s = speaker_.options.sampling;
  const int tokens = speaker_.options.max_tokens;
  put_note(
      fmt::format("settings: temp {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}, seed "
                  "{}, tokens {}",
                  s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty, s.seed,
                  tokens < 0 ? "until the model ends" : std::to_string(tokens)));
  if (!changed_.empty()) put_note("set here: " + text_of(changed_));
}

void Chat::show(const std::string&) {
  const Engine& engine = *speaker_.engine;
  const ChatTemplate& format = conversation_.format();
  put_note(fmt::format("model:    {}, on {}", engine.path(), engine.device()));
  put_note(fmt::format("template: {}", format.own() ? "from the model file"
                                                    : fmt::format("the {} format", format.name())));
  put_note(fmt::format("system:   {}",
                       conversation_.has_system() ? conversation_.messages()[0].content : "none"));
  if (const Tools& tools = flags_.tools.options().tools; !tools.empty())
    put_note(fmt::format("tools:    {}", fmt::join(tools.names(), ", ")));
  show_settings();
  put_note("context:  " + of_context(conversation_.tokens().size()));
}

void Chat::count_tokens(const std::string&) { put_note(of_context(conversation_.tokens().size())); }

void Chat::stats(const std::string&) {
  put_note(fmt::format("{}; {} read, {:.0f} tok/s, {} cached", counted(total_.answers, "answer"),
                       counted(total_.read, "token"), rate(total_.timed, total_.prompt_seconds),
                       total_.cached));
  put_note(fmt::format("{} written, {:.1f} tok/s{}", counted(total_.written, "token"),
                       rate(total_.written, total_.decode_seconds),
                       total_.drafted == 0 ? ""
                                           : fmt::format("; {} of {} draft tokens accepted",
                                                         total_.accepted, total_.drafted)));
}

void Chat::copy(const std::string&) {
  const ChatMessage* const last = conversation_.last_answer();
  if (!last) fail(Exit::usage, "there is no answer yet");
  if (!stdout_is_terminal()) fail(Exit::usage, "/copy needs a terminal");
  put_to_clipboard(last->content);
  put_note(
      fmt::format("{} copied to the terminal's clipboard", counted(last->content.size(), "byte")));
}

// The KV cache is saved next to the conversation, so that it continues without reading it again.
void Chat::save(const std::string& path) {
  if (path.empty()) fail(Exit::usage, "/save expects a file");
  if (path.ends_with(kStatesEnding))
    fail(Exit::usage,
         "{}: names that end in .kv are for the KV cache of a conversation, expected {}", path,
         path == kStatesEnding ? "a name before the ending" : without_ending(path));
  const std::string states = states_file(path);
  conversation_.expect_can_save(path);
  expect_kv_file(states);
  conversation_.save(path, changed_);
  put_note(fmt::format("{} in {}", counted(conversation_.messages().size(), "message"), path));
  // The session may hold more than the conversation: thinking, and what was removed from it.
  Session& session = *speaker_.session;
  const int tokens = session.rewind(int(session.common_prefix(conversation_.tokens())));
  if (tokens == 0) {
    std::error_code none;
    std::filesystem::remove(states, none);
    return;
  }
  try {
    const uint64_t bytes = session.save(states);
    put_note(fmt::format("KV cache of {} in {}, {:.3g} MB", counted(uint64_t(tokens), "token"),
                         states, double(bytes) / 1e6));
  } catch (const Error& error) {
    put_notice(std::string(error.what()) + ": the text will be read again");
  }
}

void Chat::load(const std::string& path) {
  if (path.empty()) fail(Exit::usage, "/load expects a file");
  if (Session::is_saved(path))
    fail(Exit::usage, "{}: holds a KV cache, expected the conversation that it belongs to{}", path,
         path.ends_with(kStatesEnding) ? ", " + without_ending(path) : "");
  const Settings saved = conversation_.load(path);
  put_state(fmt::format("{} from {}", counted(conversation_.messages().size(), "message"), path));
  if (!std::exchange(changed_, {}).empty()) {  // settings of the conversation before
    settings_ = flags_.generation;
    speaker_.set(settings_.generate);
  }
  take_settings(saved, path);
  const std::string states = states_file(path);
  if (std::error_code none; !std::filesystem::exists(states, none)) return;
  try {
    speaker_.session->restore(states);
    put_state(fmt::format("KV cache of {} from {}",
                          counted(speaker_.session->tokens().size(), "token"), states));
  } catch (const Error& error) {
    put_notice(std::string(error.what()) + ": the text is read again");
  }
}

void Chat::think(const std::string& how) {
  if (std::ranges::count(kThinkModes, how) > 0) {
    think_ = how;
    return put_note("thinking: " + think_);
  }
  if (!how.empty()) fail(Exit::usage, "/think takes no argument, or auto, show or hide");
  if (thought_.empty()) fail(Exit::usage, "the last answer has no thinking");
  put(stdout_is_terminal() ? dimmed(safe_for_terminal(thought_)) : thought_);
  put("\n");
}

}  // namespace chaski
