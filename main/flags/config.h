// The user's file of defaults for flags, ~/.config/chaski/config.toml:
//
//   threads = 4                  # for every command that has the flag
//   [chat]                       # for one command
//   system = "Be brief."
//   [models."smollm2*"]          # for models whose name, file name or -m fits the pattern
//   temp = 0.2
//
// What is typed wins over all of it, a model's table over a command's, that over the top; of two
// models' tables that fit the later one wins. CHASKI_CONFIG names another file, or none.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "main/flags/flags.h"

namespace chaski {

struct Defaults {
  std::string path;                  // of the file
  std::vector<std::string> words;    // as if somebody had typed them
  std::map<std::string, int> lines;  // where the file sets a flag, by the flag's long name

  // "FILE:LINE: " for the text of an error that begins with a flag that the file sets; else "".
  std::string place_of(std::string_view error) const;
};

// What the file says for a command, without the flags that are given (by their long names, with
// their values) and those that cannot stand beside one of them. Throws Error(usage) that names
// file, line and key, also for faults in what concerns other commands, and Error(io).
Defaults read_defaults(const Manual& command, const std::map<std::string, std::string>& given);

}  // namespace chaski
