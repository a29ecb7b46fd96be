// The slash commands of chat about messages. chat_settings.cpp has those about model and settings.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "engine/shelf/inspection.h"  // for likely_name()
#include "engine/shelf/shelf.h"
#include "engine/text/characters.h"
#include "engine/text/utf8.h"
#include "main/commands/chat.h"
#include "main/commands/transcript.h"
#include "main/flags/options.h"
#include "main/terminal/output.h"
#include "main/terminal/text_editor.h"
#include "main/terminal/utf8_note.h"

namespace chaski {

namespace {

constexpr std::string_view kStatesEnding = ".kv";  // FILE.kv has the KV cache of conversation FILE
const std::vector<std::string> kThinkModes = {"auto", "show", "hide"};  // of /think
const std::vector<std::string> kEditPlaces = {"here", "editor"};        // of /edit
constexpr size_t kTurnsShown = 2, kLinesShown = 10;  // of a conversation that is continued

std::string states_file(const std::string& path) { return path + std::string(kStatesEnding); }

std::string without_ending(const std::string& path) {
  return path.substr(0, path.size() - kStatesEnding.size());
}

}  // namespace

std::span<const Chat::Command> Chat::commands() {
  static constexpr Command kAll[] = {
      {"/help", "", "this list", &Chat::help},
      {"/system", "TEXT", "set the system message: instructions for the model", &Chat::set_system},
      {"/clear", "", "start a new conversation", &Chat::clear},
      {"/undo", "", "remove the last question and its answer", &Chat::undo},
      {"/retry", "", "generate another answer to the last question", &Chat::retry},
      {"/edit", "[HOW]",
       "change the last question and ask it again: here, in $EDITOR (editor), or, without HOW, in "
       "$EDITOR if it has several lines",
       &Chat::edit},
      {"/file", "FILE", "send the text of a file with the next message; \"\" takes it back",
       &Chat::attach},
      {"/history", "", "show the conversation", &Chat::history},
      {"/save", "FILE", "save the conversation; its KV cache goes to FILE.kv", &Chat::save},
      {"/load", "FILE", "continue a saved conversation", &Chat::load},
      {"/model", "MODEL", "continue the conversation with another model", &Chat::change_model},
      {"/set", "NAME VALUE",
       "change a setting; names are those of the flags: /set temp 0.5, /set stop \"END\"; also "
       "system; \"\" turns a text off",
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

const Chat::Command* Chat::command_of(const std::string& message) {
  const std::string name = message.substr(0, message.find_first_of(" \n"));
  const auto found =
      std::ranges::find_if(commands(), [&](const Command& each) { return name == each.name; });
  return found == commands().end() ? nullptr : &*found;
}

std::vector<std::pair<std::string, std::string>> Chat::manual() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Command& command : commands())
    rows.emplace_back(
        fmt::format("{}{}{}", command.name, *command.argument ? " " : "", command.argument),
        command.help);
  return rows;
}

void Chat::run_command(const std::string& line) {
  const size_t end = std::min(line.find_first_of(" \n"), line.size());
  const std::string name = line.substr(0, end);
  const size_t begin = line.find_first_not_of(" \n", end);
  std::string argument = begin == std::string::npos ? "" : line.substr(begin);
  argument.erase(argument.find_last_not_of(' ') + 1);  // Tab adds a space after a word
  const Command* const command = command_of(line);
  if (!command) {
    const std::string likely = likely_name(name, names_of_commands());
    return report_error(
        Exit::usage,
        fmt::format(
            "{} is not a command, {}{}", name,
            likely.empty() ? "/help lists the commands" : fmt::format("did you mean {}?", likely),
            conversation_.open_call()
                ? "; if it is the result of the call, put it between two \"\"\""
                : ""));
  }
  if (!argument.empty() && !*command->argument)
    return report_error(Exit::usage,
                        fmt::format("{} takes no argument, found \"{}\"", name, argument));
  try {
    (this->*command->run)(argument);
  } catch (const Error& error) {
    report_error(error.code, error.what());
  }
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
    if (argument == "[HOW]") offer(front, command.run == &Chat::think ? kThinkModes : kEditPlaces);
    if (argument == "MODEL") {
      std::vector<std::string> names;
      for (const ShelvedModel& model : models_on_shelf()) names.push_back(model.name);
      offer(front, names);
      std::ranges::move(completions_of_files(front, typed.substr(space + 1)),
                        std::back_inserter(all));
    }
    GenerationFlags settings = settings_;
    if (argument.starts_with("NAME")) {
      offer(front, names_of_flags([&](Flags& flags) { settings.declare_settings(flags); }));
      offer(front, {kSystem});
    }
  }
  std::erase_if(all, [](const auto& one) { return one.line.ends_with(kStatesEnding); });
  return all;
}

void Chat::help(const std::string&) {
  constexpr size_t kColumn = 17;
  const size_t width = stderr_is_terminal() ? size_t(terminal_width(2)) : std::string::npos;
  const auto put_row = [&](const std::string& what, const std::string& does) {
    std::string lines = hanging(fmt::format("{:<{}}", what, kColumn), does, kColumn, width);
    lines.pop_back();
    for (size_t at = 0, end; at <= lines.size(); at = end + 1) {
      end = std::min(lines.find('\n', at), lines.size());
      put_note(lines.substr(at, end - at));
    }
  };
  for (const auto& [command, does] : manual()) put_row(command, does);
  put_row("\"\"\"", "begin and end a message of several lines; a paste does the same");
  put_row("\\", "at the end of a line, or Alt-Enter: the message continues");
  put_row("Up, Down", "move between the lines of a message, and to earlier messages");
  put_row("Tab", "complete commands, files, models and settings");
  put_row("Ctrl-C", "stop the answer; at the prompt: drop the line; twice: end the chat");
}

void Chat::set_system(const std::string& text) {
  if (text.empty())
    return conversation_.has_system()
               ? put_transcript({"", conversation_.system()}, std::string::npos, ShownAs::note)
               : put_note("there is no system message");
  const bool removes = text == "\"\"";
  put_utf8_note("the system message", text, speaker_.tokenizer());
  conversation_.set_system(removes ? "" : text);
  if (interactive_)
    put_note(removes ? "the system message is removed" : "the system message is set");
}

// Removes the last question and all after it. Returns the question with its files.
std::string Chat::take_question() {
  std::string question = conversation_.take_back();
  if (!asked_.empty()) asked_.pop_back();
  return question;
}

// The same. Up then shows the question, and its files are queued again.
std::string Chat::remove_question() {
  Asked asked = asked_.empty() ? Asked() : asked_.back();
  std::string question = take_question();
  editor_.recall(asked.typed.empty() ? editor_.line_of(question) : asked.typed);
  queue_again(asked.result_files);
  queue_again(asked.files);
  return question;
}

void Chat::undo(const std::string&) {
  const std::string question = remove_question();
  const auto more = uint64_t(std::ranges::count(question, '\n'));
  put_note("removed: " + without_tabs(question.substr(0, question.find('\n'))) +
           (more > 0 ? " and " + counted(more, "more line") : ""));
  put_queued_files();
}

// Changes the seed, because the same seed would draw the same answer.
void Chat::retry(const std::string&) {
  const Snapshot earlier = snapshot();
  conversation_.ask(conversation_.take_back());
  if (!asked_.empty()) queue_again(asked_.back().result_files);
  changed_["seed"] = std::to_string(++settings_.generate.sampling.seed);
  speaker_.set(settings_);
  reply(Cause::retry, earlier);
}

void Chat::clear(const std::string&) {
  conversation_.clear(), asked_.clear();
  for (const AttachedFile& file : std::exchange(files_, {}))
    put_note(file.path + " is not sent with the next message");
}

// Puts the last question into the next line. If that line is sent, it replaces the question and its
// answer.
void Chat::edit(const std::string& where) {
  if (!where.empty() && std::ranges::count(kEditPlaces, where) == 0)
    fail(Exit::usage, "/edit expects here, editor or nothing, found \"{}\"", where);
  const ChatMessage* const last = conversation_.last_question();
  if (!last) fail(Exit::usage, "there is no question yet");
  const bool long_one = interactive_ && last->content.find('\n') != std::string::npos;
  if (where == "editor" || (where.empty() && long_one && has_text_editor()))
    return edit_in_editor(last->content);
  if (!editor_.fits_screen(last->content))
    put_notice(
        "the question is longer than the screen, which shows its end: /edit editor opens all of it "
        "in the editor that the variable EDITOR names");
  edits_ = true;
  editor_.suggest(last->content);
}

void Chat::edit_in_editor(const std::string& question) {
  if (!interactive_) fail(Exit::usage, "/edit editor needs a terminal");
  const std::string text = edited_text(question);
  if (text == question) return put_note("the question is unchanged: its answer stays");
  if (text.find_first_not_of(" \t\n") == std::string::npos)
    return put_note("the new question is empty: the old one and its answer stay");
  put_transcript({"user", text}, kLinesShown, ShownAs::state);
  const std::string line = editor_.line_of(text);
  editor_.remember(line);
  ask({.text = text, .typed = line}, Cause::edit);
}

void Chat::attach(const std::string& path) {
  if (path == "\"\"") {
    files_.clear();
    return put_note("no file is sent with the next message");
  }
  if (!path.empty()) {
    const std::string text = read_text(path);
    if (text.find('\0') != std::string::npos || valid_utf8(text) != text)
      fail(Exit::usage, "{} is not text in UTF-8, expected a text file", path);
    files_.push_back({path, text.substr(0, text.find_last_not_of("\r\n") + 1)});
  }
  if (files_.empty()) fail(Exit::usage, "/file expects a file");
  for (const AttachedFile& file : files_) {
    const size_t tokens = speaker_.tokenizer().encode(file.text).size();
    put_note(fmt::format("{}: {} {} sent with the next message", file.path,
                         counted(tokens, "token"), tokens == 1 ? "is" : "are"));
  }
}

// A message with the files of /file after it, which are moved to `sent`. A tool's result may be a
// file alone.
std::string Chat::with_files(std::string text, std::vector<AttachedFile>& sent) {
  for (AttachedFile& file : std::exchange(files_, {})) {
    text += text.empty() ? file.text : fmt::format("\n\n{}:\n{}", file.path, file.text);
    sent.push_back(std::move(file));
  }
  return text;
}

// The files of a removed message are sent with the next one.
void Chat::queue_again(std::vector<AttachedFile>& sent) {
  std::ranges::move(sent, std::inserter(files_, files_.begin()));
  sent.clear();
}

void Chat::put_queued_files() const {
  for (const AttachedFile& file : files_)
    put_note(file.path + " is sent with the next message; /file \"\" takes it back");
}

void Chat::history(const std::string&) {
  const std::vector<ChatMessage> all = conversation_.all_messages();
  if (all.empty()) fail(Exit::usage, "there is no message yet");
  for (const ChatMessage& message : all) put_transcript(message, std::string::npos, ShownAs::note);
  if (const size_t dropped = all.size() - conversation_.messages().size(); dropped > 0)
    put_note(fmt::format("{} of these are no longer in the context", dropped));
}

// The last questions and answers of a conversation that is continued.
void Chat::show_last_turns() {
  const std::vector<ChatMessage>& all = conversation_.messages();
  size_t first = all.size();
  for (size_t turns = 0; first > 0 && turns < kTurnsShown;)
    if (all[--first].role == "user") ++turns;
  if (first > 0)
    put_state(fmt::format("... {} before: /history shows all", counted(first, "message")));
  for (size_t i = first; i < all.size(); ++i) put_transcript(all[i], kLinesShown, ShownAs::state);
}

void Chat::copy(const std::string&) {
  const ChatMessage* const last = conversation_.last_answer();
  if (!last || last->content.empty()) fail(Exit::usage, "there is no answer to copy");
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
  conversation_.save(path, changed_, lasting_name());
  const std::vector<ChatMessage> all = conversation_.all_messages();
  put_note(fmt::format("{} in {}", counted(all.size(), "message"), path));
  if (std::ranges::any_of(
          all, [](const ChatMessage& m) { return valid_prefix(m.content) < m.content.size(); }))
    put_notice(path + ": a byte that is not UTF-8 is saved as U+FFFD, because the file is JSON");
  for (const AttachedFile& file : files_)
    put_note(file.path + " is not saved, because it is sent with the next message");
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

void expect_conversation(const std::string& path) {
  if (std::error_code none;
      !std::filesystem::exists(path, none) && !find_model(path, NameMatch::whole).path.empty())
    fail(Exit::usage, "{0} is a model, expected a saved conversation; /model {0} changes the model",
         path);
  if (Session::is_saved(path))
    fail(Exit::usage, "{} holds a KV cache, expected the conversation that it belongs to{}", path,
         path.ends_with(kStatesEnding) ? ", " + without_ending(path) : "");
}

void Chat::load(const std::string& path) {
  if (path.empty()) fail(Exit::usage, "/load expects a file");
  expect_conversation(path);
  // After /model the grammar of the flags may not fit: that is an error before anything changes.
  if (first_rules_) speaker_.model->grammar(first_rules_);
  const SavedConversation saved = conversation_.load(path);
  asked_.clear();
  const size_t all = conversation_.all_messages().size(),
               dropped = all - conversation_.messages().size();
  put_state(fmt::format("{} from {}", counted(all, "message"), path));
  if (dropped > 0)
    put_notice(fmt::format("{} of them are not in the context, which was full", dropped));
  call_is_shown_ = false;
  if (interactive_) show_last_turns();
  put_other_model(saved.model, path);
  const bool calls = std::ranges::any_of(conversation_.messages(),
                                         [](const ChatMessage& m) { return !m.calls.empty(); });
  if (calls && !flags_.tools.given())
    put_notice(path +
               " has tool calls: without --tools FILE the model is shown no functions, and "
               "calls in its answers stay text");
  take_settings(saved.settings, path);
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
