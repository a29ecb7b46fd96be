#include "main/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include "engine/engine.h"
#include "main/commands.h"
#include "main/output.h"

namespace chaski {

namespace {

constexpr const char* kVersion = "chaski 0.1.0";

constexpr int kLeast = std::numeric_limits<int>::min(), kMost = std::numeric_limits<int>::max();

template <class T>
std::optional<T> number_of(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end ? std::optional(value) : std::nullopt;
}

std::string refusal(const std::string& text, const std::string& expected) {
  return fmt::format("is \"{}\", expected {}", text, expected);
}

// Validators that leave a number as CLI11 reads it: "010" becomes 10. What they expect is told when
// it is not met, not in the help.
template <class T>
CLI::Validator whole(T least, T most) {
  const auto rewrite = [=](std::string& text) {
    const auto value = number_of<T>(text);
    if (!value || *value < least || *value > most)
      return refusal(text, fmt::format("a number from {} to {}", least, most));
    text = std::to_string(*value);
    return std::string();
  };
  return {rewrite, ""};
}
CLI::Validator range(int least, int most) { return whole(least, most); }
CLI::Validator any_uint64() { return whole<uint64_t>(0, UINT64_MAX); }
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
  option_->check(CLI::IsMember(std::move(names)).description(""));
  return *this;
}
Flag& Flag::one_of(const char* name, int least, int most) {
  const std::vector<std::string> names = {name};
  option_->check((CLI::IsMember(names) | range(least, most)).description(""));
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
Flag Flags::add(const char* names, uint64_t& value, const std::string& help) {
  return Flag(app_.add_option(names, value, help)->transform(any_uint64()));
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

void wrong_flag(const std::string& flag, const std::string& why) {
  throw CLI::ValidationError(flag, why);
}

int run_command_line(int argc, char** argv) {
  CLI::App app("Runs, quantizes and inspects language models on this machine.", "chaski");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(0, 1);
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    actions[sub] = command.declare(Flags(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    std::ostringstream text;
    const int status = app.exit(done, text, text);
    put(text.str());
    return status;
  } catch (const CLI::ParseError& error) {
    throw Error(Exit::usage, error.what());
  }
  const auto chosen = app.get_subcommands();
  if (chosen.empty())
    fail(Exit::usage, "no command given, expected one of {} (see chaski --help)", command_names());
  return actions.at(chosen[0])();
}

}  // namespace chaski
