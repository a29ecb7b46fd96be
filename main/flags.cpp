#include "main/flags.h"

#include <CLI/CLI.hpp>
#include <map>

#include "engine/engine.h"
#include "main/commands.h"

namespace chaski {

namespace {

constexpr const char* kVersion = "chaski 0.1.0";

CLI::Validator range(int least, int most) { return CLI::Range(least, most).description(""); }

std::string command_names() {
  std::string names;
  for (const Command& command : kCommands)
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

}  // namespace

Flag& Flag::type(const char* name) { return option_->type_name(name), *this; }
Flag& Flag::required() { return option_->required(), *this; }
Flag& Flag::excludes(const Flag& other) { return option_->excludes(other.option_), *this; }
Flag& Flag::within(int least, int most) { return option_->check(range(least, most)), *this; }
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
  return Flag(app_.add_option(names, value, help));
}
Flag Flags::add(const char* names, double& value, const std::string& help) {
  return Flag(app_.add_option(names, value, help));
}
Flag Flags::add(const char* names, uint64_t& value, const std::string& help) {
  return Flag(app_.add_option(names, value, help));
}
Flag Flags::add(const char* names, std::vector<std::string>& values, const std::string& help) {
  return Flag(app_.add_option(names, values, help));
}
Flag Flags::add(const char* names, std::vector<int32_t>& values, const std::string& help) {
  return Flag(app_.add_option(names, values, help));
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
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    throw Error(Exit::usage, error.what());
  }
  const auto chosen = app.get_subcommands();
  if (chosen.empty())
    fail(Exit::usage, "no command given, expected one of {} (see chaski --help)", command_names());
  return actions.at(chosen[0])();
}

}  // namespace chaski
