// Command lines without a command: flags of the program itself, and unknown commands.
#pragma once
#include <string>
#include <vector>

namespace chaski {

std::string command_names();  // "run, chat, ..."

// Runs a command line whose first word is not a command: --help, --version or --man. Returns the
// exit status. Throws Error(usage) for any other word.
int run_without_command(const std::vector<std::string>& words);

}  // namespace chaski
