#include "main/flags/program.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/session/engine.h"    // for Error
#include "engine/shelf/inspection.h"  // for likely_name()
#include "main/flags/commands.h"
#include "main/flags/habits.h"
#include "main/flags/manual.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

[[noreturn]] void refuse_command(const std::string& word) {
  if (!help_of_topic(word).empty())
    fail(Exit::usage, "{} is a help topic, not a command: chaski help {}", word, word);
  const auto has_flag = [](const std::string&) { return false; };
  if (const Habit* habit = find_habit("", word, has_flag))
    fail(Exit::usage, "{}: {}", word, habit->here);
  std::error_code none;
  if (std::filesystem::exists(word, none))
    fail(Exit::usage, "{} is a file, not a command; to chat with a model: chaski chat -m {}", word,
         word);
  if (is_flag(word))
    fail(Exit::usage, "{} comes before a command, expected a command first: {}", word,
         command_names());
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::string likely = likely_name(word, names);
  fail(Exit::usage, "unknown command {}, {}", word,
       likely.empty() ? "expected one of " + command_names()
                      : fmt::format("did you mean {}?", likely));
}

}  // namespace

std::string command_names() {
  std::string names;
  for (const Command& command : kCommands)
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

int run_without_command(const std::vector<std::string>& words) {
  const std::string& word = words[0];
  if (words.size() > 1 && (word == "--version" || word == "--man"))
    fail(Exit::usage, "{} takes no arguments, found \"{}\"", word, words[1]);
  if (word == "-h" || word == "--help")
    put(help_of_program());
  else if (word == "--version")
    put(fmt::format("chaski {}\n", kVersion));
  else if (word == "--man")
    put(man_page_of_program());
  else
    refuse_command(word);
  return int(Exit::done);
}

}  // namespace chaski
