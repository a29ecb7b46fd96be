#include "main/flags/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "engine/session/engine.h"
#include "engine/shelf/inspection.h"
#include "main/flags/commands.h"
#include "main/flags/config.h"
#include "main/flags/fetch_model.h"
#include "main/flags/habits.h"
#include "main/flags/manual.h"
#include "main/flags/program.h"
#include "main/flags/ranks.h"
#include "main/flags/values.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

bool takes_value(const CLI::Option& flag) { return flag.get_items_expected_max() > 0; }

// The row of habits for a flag of `command`, or null.
const Habit* habit_of(const CLI::App& command, const std::string& flag) {
  return find_habit(command.get_name(), flag, [&](const std::string& name) {
    return command.get_option_no_throw(name) != nullptr;
  });
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* flag : command.get_options()) {
    for (const std::string& name : flag->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : flag->get_snames()) names.push_back("-" + name);
  }
  for (const Habit& habit : habits())
    for (const std::string& name : words_in(habit.names))
      if (is_flag(name) && habit_of(command, name) == &habit) names.push_back(name);
  return names;
}

// Rewrites the words after a command so that CLI11 reads them in one way only: "-ngl" is one flag,
// and a flag's value is a word of its own. Unknown flags are refused here, because only here the
// habits and the flags of other commands are known for a suggestion.
class CommandWords {
 public:
  // Errors name `others`, too: settings that the caller takes itself.
  CommandWords(const CLI::App& command, const Manual& manual, std::vector<std::string> words,
               std::vector<std::string> others = {})
      : command_(command), manual_(manual), words_(std::move(words)), others_(std::move(others)) {}

  // The given flags by their long names, each with its value; a list has its first one.
  const std::map<std::string, std::string>& given() const { return given_; }
  // Whether --prompt was typed without its name.
  bool has_unnamed_prompt() const { return has_unnamed_prompt_; }
  // Notes about flags that have no effect.
  const std::vector<std::string>& notes() const { return notes_; }
  // Notes for --verbose about flags that are given again: the last value is used.
  const std::vector<std::string>& replacements() const { return replacements_; }

  std::vector<std::string> read() {
    while (at_ < words_.size()) {
      const std::string word = words_[at_++];
      if (word == "--") {
        const auto rest = words_.begin() + ptrdiff_t(at_);
        auto& bare = takes_model_and_prompt(command_.get_name()) ? unnamed_ : bare_;
        bare.insert(bare.end(), rest, words_.end());
        if (!bare_.empty()) out_.insert(out_.end(), rest - 1, words_.end());
        break;
      }
      if (is_flag(word))
        read_flag(word);
      else if (takes_model_and_prompt(command_.get_name()))
        unnamed_.push_back(word);
      else
        out_.push_back(word), bare_.push_back(word);
    }
    name_words();
    count_positionals();
    for (const auto& [here, part] : parts_)
      if (part.alone && *part.habit->part)
        notes_.push_back(fmt::format("{} {}", part.name, part.habit->part));
    return out_;
  }

 private:
  struct Part {
    std::string name;  // as typed
    const Habit* habit;
    bool alone = true;  // without the flag of another part
  };

  // `chaski run MODEL PROMPT` is `chaski run -m MODEL -p PROMPT`.
  void name_words() {
    auto word = unnamed_.begin();
    const bool has_model = given_.contains("--model") || given_.contains("--hub");
    const auto is_model = [](const std::string& text) {
      std::error_code none;
      return text.find(' ') == std::string::npos || std::filesystem::exists(text, none);
    };
    if (word != unnamed_.end() && !has_model && is_model(*word)) put("--model", *word++);
    if (word == unnamed_.end()) return;
    if (given_.contains("--prompt")) return out_.push_back(*word);  // the parser refuses it
    put("--prompt", fmt::format("{}", fmt::join(word, unnamed_.end(), " ")));
    has_unnamed_prompt_ = true;
  }

  // A positional argument may have a name, too: quantize OUT TYPE is --type TYPE.
  void count_positionals() {
    auto word = bare_.begin();
    for (const CLI::Option* flag : command_.get_options()) {
      if (!flag->get_positional() || word == bare_.end()) continue;
      const auto [before, first] = given_.emplace(flag->get_name(), *word);
      if (!first)
        fail(Exit::usage, "{} is given twice, as {} by name and as {} by position, expected once",
             flag->get_name(), before->second, *word);
      ++word;
    }
  }

  void read_flag(const std::string& word) {
    const size_t end = std::min(word.find('='), word.size());
    std::optional<std::string> value;
    if (end < word.size()) value = word.substr(end + 1);
    std::string name = word.substr(0, end);
    if (command_.get_option_no_throw(name)) return put(name, value);
    if (name.starts_with("--")) {
      std::replace(name.begin(), name.end(), '_', '-');
      if (command_.get_option_no_throw(name)) return put(name, value);
    } else if (name.size() > 2 && std::isdigit(static_cast<unsigned char>(name[2])) &&
               command_.get_option_no_throw(name.substr(0, 2))) {
      return put(name.substr(0, 2), word.substr(2));  // -t4
    }
    const Habit* habit = habit_of(command_, name);
    if (!habit) refuse(name);
    const std::vector<std::string> here = words_in(habit->here);
    if (habit->passed != Habit::Passed::no) return skip(name, *habit, value.has_value());
    if (*habit->here && *habit->here != '-') fail(Exit::usage, "{}: {}", name, habit->here);
    if (here.empty()) return;
    expect_same_part(name, *habit, here[0], value);
    put(here[0], here.size() > 1 ? here[1] : value);
  }

  // Two rows of habits with the same flag set two parts of it (-ctk, -ctv), which chaski cannot set
  // apart.
  void expect_same_part(const std::string& name, const Habit& habit, const std::string& here,
                        const std::optional<std::string>& value) {
    const auto [before, first] = parts_.emplace(here, Part{name, &habit});
    Part& other = before->second;
    const std::string now = value ? *value : at_ < words_.size() ? words_[at_] : "";
    if (first || other.habit == &habit || std::string_view(other.habit->here) != habit.here) return;
    other.alone = false;
    if (now == given_[here]) return;
    fail(Exit::usage, "{} is {} and {} is {}, expected the same for both: {} sets them together",
         other.name, given_[here], name, now, here);
  }

  // Skips a flag that has no effect here, with its value.
  void skip(const std::string& name, const Habit& habit, bool has_value) {
    constexpr std::string_view kSwitch[] = {"on", "off", "auto", "0", "1"};
    if (!has_value && at_ < words_.size() &&
        (habit.passed == Habit::Passed::with_value ||
         (habit.passed == Habit::Passed::with_switch &&
          std::ranges::count(kSwitch, words_[at_]) > 0)))
      ++at_;
    notes_.push_back(fmt::format("{} has no effect: {}", name, habit.here));
  }

  void put(const std::string& name, std::optional<std::string> value) {
    const CLI::Option& flag = *command_.get_option_no_throw(name);
    if (!takes_value(flag) && value) fail(Exit::usage, "{} takes no value", name);
    if (takes_value(flag) && !value) {
      if (at_ == words_.size()) fail(Exit::usage, "{} needs a value after it", name);
      value = words_[at_++];
    }
    const auto [before, first] = given_.emplace(flag.get_name(), value.value_or(""));
    if (!first && flag.get_items_expected_max() <= 1) {
      if (value && *value != before->second) {
        const ListedFlag* const listed = manual_.flag(flag.get_name());
        auto& notes = listed && listed->notes_if_repeated ? notes_ : replacements_;
        notes.push_back(fmt::format("{} is given again: {:.60} replaces {:.60}", flag.get_name(),
                                    escaped(*value), escaped(before->second)));
        out_[places_.at(flag.get_name())] = before->second = *value;
      }
      return;
    }
    out_.push_back(name);
    if (!value) return;
    places_[flag.get_name()] = out_.size();
    out_.push_back(*value);
  }

  [[noreturn]] void refuse(std::string name) {
    const bool in_chat = command_.get_name().starts_with('/');
    std::vector<std::string> known = flags_of(command_);
    for (const std::string& other : others_) known.push_back("--" + other);
    std::string likely = likely_name(name, known);
    if (in_chat)  // settings are typed without dashes
      for (std::string* word : {&name, &likely})
        word->erase(0, std::min(word->find_first_not_of('-'), word->size()));
    if (in_chat)
      fail(Exit::usage, "{} has no setting {}, {}", command_.get_name(), name,
           likely.empty() ? "expected one of " + settings()
                          : fmt::format("did you mean {}?", likely));
    std::vector<std::string> others;
    for (const Manual& other : manuals())
      for (const ListedFlag& flag : other.flags)
        if (std::ranges::count(flag.names, name) > 0) others.push_back(other.command);
    const std::string hint = !others.empty() ? ", but chaski " + one_of(others) + " has it"
                             : !likely.empty()
                                 ? fmt::format(", did you mean {}?", likely)
                                 : fmt::format(", see chaski {} --help", command_.get_name());
    fail(Exit::usage, "chaski {} has no flag {}{}", command_.get_name(), name, hint);
  }

  // "temp, top-k, ...": the flags without dashes.
  std::string settings() const {
    std::vector<std::string> names;
    for (const CLI::Option* flag : command_.get_options())
      names.insert(names.end(), flag->get_lnames().begin(), flag->get_lnames().end());
    names.insert(names.end(), others_.begin(), others_.end());
    return fmt::format("{}", fmt::join(names, ", "));
  }

  const CLI::App& command_;
  const Manual& manual_;
  std::vector<std::string> words_, others_, out_, notes_, replacements_;
  std::vector<std::string> bare_;     // words that are neither flags nor their values
  std::vector<std::string> unnamed_;  // the same of a command without positional arguments
  bool has_unnamed_prompt_ = false;
  std::map<std::string, std::string> given_;
  std::map<std::string, size_t> places_;  // of a flag's last value in out_
  std::map<std::string, Part> parts_;     // by the flag that they set
  size_t at_ = 0;
};

// The words as flags of the command: `-m qwen -p "hello"`. Empty if they cannot be.
std::string as_flags(const CLI::App& command, const std::vector<std::string>& words) {
  constexpr size_t kMostShown = 60;  // bytes of a prompt
  const auto is_free = [&](const char* name) {
    const CLI::Option* flag = command.get_option_no_throw(name);
    return flag && flag->count() == 0;
  };
  if (words[0].starts_with('-')) return "";
  size_t at = 0;
  std::string flags;
  if (is_free("--model") && words[0].find(' ') == std::string::npos) flags += " -m " + words[at++];
  if (at == words.size()) return flags;
  if (!is_free("--prompt")) return "";
  const std::string prompt =
      fmt::format("{}", fmt::join(words.begin() + long(at), words.end(), " "));
  return flags + (prompt.size() > kMostShown ? " -p TEXT" : fmt::format(" -p \"{}\"", prompt));
}

// Refuses a word where only flags are expected.
[[noreturn]] void refuse_rest(const CLI::App& command, const Manual& manual,
                              const std::string& after_dashes) {
  std::vector<std::string> rest = command.remaining(true);
  if (rest.empty()) rest = {after_dashes};
  if (std::ranges::any_of(manual.flags, [](const ListedFlag& f) { return !f.position.empty(); }))
    fail(Exit::usage, "unexpected \"{}\", expected {}", rest[0], usage_of(manual));
  const std::string flags = as_flags(command, rest);
  fail(Exit::usage, "unexpected \"{}\", {}", rest[0],
       flags.empty()
           ? (command.get_name().starts_with('/') ? "expected a setting" : "expected a flag")
           : fmt::format("did you mean chaski {}{}?", command.get_name(), flags));
}

struct Declared {
  CLI::App& app;
  Manual manual;
  bool quiet = false;
  Action action = {};
};

// Names the notes that --quiet does not hide: put_loud_notice().
std::string help_of_quiet(const Manual& manual) {
  std::vector<std::string> files;
  for (const char* flag : {"--cache", "--answer-cache"})
    if (manual.flag(flag)) files.emplace_back(flag);
  return files.empty() ? "print errors, but no notes"
                       : fmt::format("print errors, but no notes except that {} cannot be written",
                                     fmt::join(files, " or "));
}

std::unique_ptr<Declared> declare(const Command& command, CLI::App& app) {
  auto all = std::make_unique<Declared>(Declared{app, {command.name, command.help, {}, {}, {}}});
  Flags flags(app, all->manual);
  ListedFlag& help = all->manual.flags.emplace_back();
  help.names = {"-h", "--help"};
  help.help = "print this help";
  Flag quiet = flags.add_switch("-q,--quiet", all->quiet, "");
  all->action = command.declare(std::move(flags));
  quiet.help(help_of_quiet(all->manual));
  return all;
}

// Refuses more values than a list may have.
[[noreturn]] void refuse_number(const CLI::App& command, const std::string& what) {
  const std::string name = what.substr(0, what.find(':'));
  const CLI::Option* flag = command.get_option_no_throw(name);
  if (flag && flag->count() == 0)
    fail(Exit::usage, "{} has no value, expected 1 to {} values", name,
         flag->get_items_expected_max());
  if (flag)
    fail(Exit::usage, "{} has {} values, expected at most {}", name, flag->count(),
         flag->get_items_expected_max());
  throw Error(Exit::usage, what);
}

// Lets CLI11 parse words. Throws CLI::CallForHelp for --help.
void parse(CLI::App& app, const CLI::App& command, const Manual& manual,
           std::vector<std::string> words, const std::string& after_dashes) {
  words.insert(words.begin(), command.get_name());
  try {
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ExtrasError&) {
    refuse_rest(command, manual, after_dashes);
  } catch (const CLI::RequiredError& error) {
    refuse_missing(manual, error.what());
  } catch (const CLI::ArgumentMismatch& error) {
    refuse_number(command, error.what());
  } catch (const CLI::ExcludesError& error) {
    constexpr std::string_view kExcludes = " excludes ";
    std::string names = error.what();
    if (const size_t at = names.find(kExcludes); at != std::string::npos)
      names.replace(at, kExcludes.size(), " and ");
    throw Error(Exit::usage, names + " are both given, expected one of them");
  } catch (const CLI::ValidationError& error) {
    std::string what = error.what();  // "--ctx: is ..."
    if (const size_t at = what.find(": is "); at != std::string::npos) what.erase(at, 1);
    throw Error(Exit::usage, what);
  } catch (const CLI::ParseError& error) {
    throw Error(Exit::usage, error.what());
  }
}

// The first word after "--".
std::string word_after_dashes(const std::vector<std::string>& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  return words.end() - dashes > 1 ? dashes[1] : "--";
}

// Whether a text would be typed: there is none, and standard input is a terminal.
bool wants_terminal(const CLI::App& command) {
  const auto* const text = command.get_option_no_throw("--prompt");
  const auto* const file = command.get_option_no_throw("--file");
  return text && file && text->count() + file->count() == 0 && stdin_is_terminal();
}

int run_command(CLI::App& app, Declared& command, std::vector<std::string> words) {
  const std::string after_dashes = word_after_dashes(words);
  CommandWords typed(command.app, command.manual, std::move(words));
  words = typed.read();
  Defaults defaults;
  if (!typed.given().contains("--help")) defaults = read_defaults(command.manual, typed.given());
  words.insert(words.begin(), defaults.words.begin(), defaults.words.end());
  try {
    parse(app, command.app, command.manual, std::move(words), after_dashes);
    for (ListedFlag& flag : command.manual.flags)
      flag.by_config = defaults.lines.contains(flag.name()),
      flag.unnamed = flag.name() == "--prompt" && typed.has_unnamed_prompt();
    for (const ListedFlag& flag : command.manual.flags)
      if (flag.check_hosts && command.app.get_option(flag.name())->count() > 0) {
        flag.check_hosts();
        start_on_hosts(*flag.text, wants_terminal(command.app));
      }
    if (command.quiet) be_quiet();
    for (const std::string& note : typed.notes()) put_notice(note);
    put_models_taken();
    for (const ListedFlag& flag : command.manual.flags)
      if (flag.text && (flag.model || flag.fetches) &&
          command.app.get_option(flag.name())->count() > 0)
        *flag.text = model_here(
            *flag.text, flag.fetches ? Fetch::now : Fetch::ask,
            takes_model_and_prompt(command.manual.command) ? WantedModel::text : WantedModel::any);
    const CLI::Option* verbose = command.app.get_option_no_throw("--verbose");
    if (verbose && verbose->count() > 0) {
      for (const std::string& note : typed.replacements()) put_notice(note);
      if (!defaults.words.empty())
        put_notice(fmt::format("from {}: {}", defaults.path, fmt::join(defaults.words, " ")));
    }
    return command.action();
  } catch (const CLI::CallForHelp&) {
    put(help_of(command.manual));
    return int(Exit::done);
  } catch (const Error& error) {
    const std::string place = defaults.place_of(error.what());
    if (place.empty()) throw;
    throw Error(error.code, place + error.what());
  }
}

}  // namespace

std::vector<Manual> manuals() {
  std::vector<Manual> all;
  for (const Command& command : kCommands) {
    CLI::App app;
    all.push_back(declare(command, app)->manual);
  }
  return all;
}

std::vector<std::string> read_flags(const std::string& name, std::vector<std::string> words,
                                    const std::function<void(Flags&)>& declare,
                                    const std::vector<std::string>& others) {
  CLI::App app;
  CLI::App* command = app.add_subcommand(name);
  command->set_help_flag();
  Manual manual;
  Flags flags(*command, manual);
  declare(flags);
  const std::string after_dashes = word_after_dashes(words);
  CommandWords typed(*command, manual, std::move(words), others);
  words = typed.read();
  if (!typed.notes().empty()) throw Error(Exit::usage, typed.notes()[0]);
  parse(app, *command, manual, std::move(words), after_dashes);
  std::vector<std::string> names;
  for (const ListedFlag& flag : manual.flags)
    if (command->get_option(flag.name())->count() > 0) names.push_back(flag.name().substr(2));
  return names;
}

std::vector<std::string> names_of_flags(const std::function<void(Flags&)>& declare) {
  CLI::App app;
  Manual manual;
  Flags flags(app, manual);
  declare(flags);
  std::vector<std::string> names;
  for (const ListedFlag& flag : manual.flags) names.push_back(flag.name().substr(2));
  return names;
}

int run_command_line(std::vector<std::string> words) {
  if (words.empty())
    fail(Exit::usage, "no command given, expected one of {} (see chaski --help)", command_names());
  if (words[0] == "help" || (words.size() > 1 && (words[0] == "-h" || words[0] == "--help"))) {
    // "help run" is "run --help", and "help formats" a topic
    words.erase(words.begin());
    if (words.size() == 1 && !help_of_topic(words[0]).empty())
      return put(help_of_topic(words[0])), int(Exit::done);
    words.push_back("--help");
  }
  const auto named = std::ranges::find(kCommands, words[0], &Command::name);
  if (named == std::end(kCommands)) return run_without_command(words);
  CLI::App app;
  const auto command = declare(*named, *app.add_subcommand(named->name));
  words.erase(words.begin());
  if (words == std::vector<std::string>{"--man"})
    return put(man_page(command->manual)), int(Exit::done);
  return run_command(app, *command, std::move(words));
}

}  // namespace chaski
