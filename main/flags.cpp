#include "main/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "engine/engine.h"
#include "engine/inspection.h"
#include "main/commands.h"
#include "main/habits.h"
#include "main/output.h"

namespace chaski {

namespace {

constexpr const char* kVersion = "chaski 0.1.0";

constexpr int kLeast = std::numeric_limits<int>::min(), kMost = std::numeric_limits<int>::max();

std::string small(std::string text) { return CLI::detail::to_lower(std::move(text)); }

template <class T>
std::optional<T> number_of(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end ? std::optional(value) : std::nullopt;
}

// "4k" is 4096.
std::optional<int> whole_of(const std::string& text) {
  const bool thousands = text.ends_with('k') || text.ends_with('K');
  const auto value = number_of<int>(thousands ? text.substr(0, text.size() - 1) : text);
  if (!thousands || !value) return value;
  int product;
  if (__builtin_mul_overflow(*value, 1024, &product)) return std::nullopt;
  return product;
}

std::string refusal(const std::string& text, const std::string& expected) {
  return fmt::format("is \"{}\", expected {}", text, expected);
}

// Validators that leave a number as CLI11 reads it: "010" becomes 10. What they expect is told when
// it is not met, not in the help.
CLI::Validator range(int least, int most) {
  const auto rewrite = [=](std::string& text) {
    const auto value = whole_of(text);
    if (!value || *value < least || *value > most)
      return refusal(text, fmt::format("a number from {} to {}", least, most));
    text = std::to_string(*value);
    return std::string();
  };
  return {rewrite, ""};
}
CLI::Validator any_real() {
  const auto test = [](std::string& text) {
    const auto value = number_of<double>(text);
    return value && std::isfinite(*value) ? std::string() : refusal(text, "a decimal number");
  };
  return {test, ""};
}

std::string command_names() {
  std::string names;
  for (const Command& command : kCommands)
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

}  // namespace

Flag& Flag::type(const char* name) { return option_->type_name(name), *this; }
Flag& Flag::help(const char* text) { return option_->description(text), *this; }
Flag& Flag::required() { return option_->required(), *this; }
Flag& Flag::excludes(const Flag& other) { return option_->excludes(other.option_), *this; }
Flag& Flag::within(int least, int most) { return option_->transform(range(least, most)), *this; }
Flag& Flag::not_empty(const char* expected) {
  const auto test = [what = std::string(expected)](std::string& text) {
    return text.empty() ? refusal(text, what) : std::string();
  };
  option_->check({test, ""});
  return *this;
}
Flag& Flag::one_of(std::vector<std::string> names) {
  const auto rewrite = [names = std::move(names)](std::string& text) {
    for (const auto& wanted : {text, std::string(value_here(small(text)))})
      for (const std::string& name : names)
        if (small(name) == small(wanted)) return text = name, std::string();
    return refusal(text, expected_names(text, names));
  };
  option_->transform({rewrite, ""});
  return *this;
}
Flag& Flag::one_of(const char* name, int least, int most) {
  const auto test = [=](std::string& text) {
    const auto value = number_of<int>(text);
    return text == name || (value && *value >= least && *value <= most)
               ? std::string()
               : refusal(text, fmt::format("{} or a number from {} to {}", name, least, most));
  };
  option_->check({test, ""});
  return *this;
}
Flag& Flag::list(int most) {
  option_->delimiter(',')->expected(1, most)->allow_extra_args(false);
  return *this;
}
Flag& Flag::single() { return option_->expected(1), *this; }
Flag& Flag::one_each() { return option_->allow_extra_args(false), *this; }
bool Flag::given() const { return option_->count() > 0; }

Flag Flags::add(const char* names, std::string& value, const std::string& help) {
  return Flag(app_.add_option(names, value, help));
}
Flag Flags::add(const char* names, int& value, const std::string& help) {
  return Flag(app_.add_option(names, value, help)->transform(range(kLeast, kMost)));
}
Flag Flags::add(const char* names, double& value, const std::string& help) {
  return Flag(app_.add_option(names, value, help)->check(any_real()));
}
Flag Flags::add(const char* names, std::vector<std::string>& values, const std::string& help) {
  return Flag(app_.add_option(names, values, help));
}
Flag Flags::add(const char* names, std::vector<int32_t>& values, const std::string& help) {
  return Flag(app_.add_option(names, values, help)->transform(range(kLeast, kMost)));
}
Flag Flags::add_switch(const char* names, bool& value, const std::string& help) {
  return Flag(app_.add_flag(names, value, help));
}
Flag Flags::add_read(const char* names, std::function<void(const std::string&)> take,
                     const std::string& help) {
  return Flag(app_.add_option_function<std::string>(names, std::move(take), help));
}
Flag Flags::named(const char* name) { return Flag(app_.get_option(name)); }

uint64_t whole_number(const std::string& flag, const std::string& text) {
  const auto value = number_of<uint64_t>(text);
  if (!value) wrong_flag(flag, refusal(text, fmt::format("a number from 0 to {}", UINT64_MAX)));
  return *value;
}

void wrong_flag(const std::string& flag, const std::string& why) {
  throw CLI::ValidationError(flag, why);
}

namespace {

std::vector<std::string> parts_of(const std::string& names) {
  std::istringstream in(names);
  return {std::istream_iterator<std::string>(in), {}};
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) &&
         word[1] != '.';
}

bool takes_value(const CLI::Option& flag) { return flag.get_items_expected_max() > 0; }

// The row about a word; none if it is nobody's. `command` is null for the word that should name
// one.
const Habit* habit_of(const CLI::App* command, const std::string& word) {
  for (const Habit& habit : habits()) {
    const std::vector<std::string> names = parts_of(habit.names);
    if (std::find(names.begin(), names.end(), word) == names.end()) continue;
    if (*habit.command && (!command || command->get_name() != habit.command)) continue;
    if (*habit.here != '-' || (command && command->get_option_no_throw(parts_of(habit.here)[0])))
      return &habit;
  }
  return nullptr;
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* flag : command.get_options()) {
    for (const std::string& name : flag->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : flag->get_snames()) names.push_back("-" + name);
  }
  for (const Habit& habit : habits())
    for (const std::string& name : parts_of(habit.names))
      if (is_flag(name) && habit_of(&command, name) == &habit) names.push_back(name);
  return names;
}

// Reads the words behind a command as people mean them, into words that CLI11 cannot read
// otherwise: a flag of several letters is one flag, its value is a word of its own, and what is no
// flag is refused here, where it is known what else it could be.
class CommandWords {
 public:
  CommandWords(const CLI::App& command, std::vector<std::string> words)
      : command_(command), words_(std::move(words)) {}

  std::vector<std::string> read() {
    while (at_ < words_.size()) {
      const std::string word = words_[at_++];
      if (word == "--") {
        out_.push_back(word);
        out_.insert(out_.end(), words_.begin() + ptrdiff_t(at_), words_.end());
        break;
      }
      if (is_flag(word))
        read_flag(word);
      else
        out_.push_back(word);
    }
    return out_;
  }

 private:
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
    const Habit* habit = habit_of(&command_, name);
    if (!habit) refuse(name);
    const std::vector<std::string> here = parts_of(habit->here);
    if (*habit->here && *habit->here != '-') fail(Exit::usage, "{}: {}", name, habit->here);
    if (!here.empty()) put(here[0], here.size() > 1 ? here[1] : value);
  }

  void put(const std::string& name, std::optional<std::string> value) {
    const CLI::Option& flag = *command_.get_option_no_throw(name);
    if (flag.get_items_expected_max() == 1 && !given_.insert(&flag).second)
      fail(Exit::usage, "{} is given twice, expected once", flag.get_name());
    if (!takes_value(flag) && value) fail(Exit::usage, "{} takes no value", name);
    out_.push_back(name);
    if (!takes_value(flag)) return;
    if (!value && at_ == words_.size()) fail(Exit::usage, "{} expects a value behind it", name);
    out_.push_back(value ? *value : words_[at_++]);
  }

  [[noreturn]] void refuse(const std::string& name) {
    std::vector<std::string> others;
    for (const CLI::App* other : command_.get_parent()->get_subcommands([](auto) { return true; }))
      if (other->get_option_no_throw(name)) others.push_back(other->get_name());
    const std::string likely = likely_name(name, flags_of(command_)),
                      hint = !others.empty()   ? ", but of " + one_of(others)
                             : !likely.empty() ? fmt::format(", did you mean {}?", likely)
                                               : fmt::format(", chaski {} --help lists them",
                                                             command_.get_name());
    fail(Exit::usage, "{} is no flag of chaski {}{}", name, command_.get_name(), hint);
  }

  const CLI::App& command_;
  std::vector<std::string> words_, out_;
  std::set<const CLI::Option*> given_;
  size_t at_ = 0;
};

[[noreturn]] void refuse_command(const std::string& word) {
  if (const Habit* habit = habit_of(nullptr, word)) fail(Exit::usage, "{}: {}", word, habit->here);
  std::error_code none;
  if (std::filesystem::exists(word, none))
    fail(Exit::usage, "{} is no command: chaski chat -m {} talks to a model", word, word);
  if (is_flag(word))
    fail(Exit::usage, "{} stands before a command, expected one of {}", word, command_names());
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::string likely = likely_name(word, names);
  fail(Exit::usage, "{} is no command, {}", word,
       likely.empty() ? "expected one of " + command_names()
                      : fmt::format("did you mean {}?", likely));
}

// What stands where only flags do.
[[noreturn]] void refuse_rest(const CLI::App& command) {
  const std::string flags = command.get_option_no_throw("--model")
                                ? ", expected -m MODEL for a model and -p TEXT for a prompt"
                                : "";
  fail(Exit::usage, "{} has no flag in front of it{}", command.remaining(true)[0],
       command.get_option_no_throw("--prompt") ? flags : flags.substr(0, flags.find(" and")));
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app("Runs, quantizes and inspects language models on this machine.", "chaski");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(0, 1);
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    sub->add_flag(
        "-q,--quiet", [](int64_t) { be_quiet(); }, "say nothing but errors");
    actions[sub] = command.declare(Flags(*sub));
  }
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty())
    fail(Exit::usage, "no command given, expected one of {} (see chaski --help)", command_names());
  const CLI::App* command = nullptr;
  for (const auto& [sub, action] : actions)
    if (sub->get_name() == words[0]) command = sub;
  if (command) {
    words = CommandWords(*command, {words.begin() + 1, words.end()}).read();
    words.insert(words.begin(), command->get_name());
  } else if (!app.get_option_no_throw(words[0])) {
    refuse_command(words[0]);
  }
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
  } catch (const CLI::Success& done) {  // --help, --version
    std::ostringstream text;
    const int status = app.exit(done, text, text);
    put(text.str());
    return status;
  } catch (const CLI::ExtrasError&) {
    refuse_rest(command ? *command : app);
  } catch (const CLI::ParseError& error) {
    throw Error(Exit::usage, error.what());
  }
  return actions.at(command)();
}

}  // namespace chaski
