// The program: parses the command line, runs one subcommand, and turns what it throws into one line
// and an exit status. Exit codes are listed in ggml-like-tensor/base/error.h.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <new>
#include <sstream>
#include <string>

#include "engine/engine.h"
#include "main/commands.h"
#include "main/output.h"
#include "main/signals.h"

namespace chaski {

namespace {

constexpr const char* kVersion = "chaski 0.1.0";

int report(Exit code, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  put_note("chaski: " + line);
  return int(code);
}

std::string command_names() {
  std::string names;
  for (const Command& command : kCommands)
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Runs, quantizes and inspects language models on this machine.", "chaski");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(0, 1);
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    actions[sub] = command.declare(*sub);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    std::ostringstream text;
    const int status = app.exit(done, text, text);
    put(text.str());
    return status;
  } catch (const CLI::ParseError& error) {
    return report(Exit::usage, error.what());
  }
  const auto chosen = app.get_subcommands();
  if (chosen.empty())
    return report(
        Exit::usage,
        fmt::format("no command given, expected one of {} (see chaski --help)", command_names()));
  return actions.at(chosen[0])();
}

}  // namespace

}  // namespace chaski

int main(int argc, char** argv) {
  using namespace chaski;
  handle_signals();
  try {
    return parse_and_run(argc, argv);
  } catch (const Error& error) {
    return report(error.code, error.what());
  } catch (const std::bad_alloc&) {
    return report(Exit::memory, "not enough memory");
  } catch (const std::exception& error) {
    return report(Exit::io, error.what());
  }
}
