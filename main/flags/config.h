// The user's config file with defaults for flags, ~/.config/chaski/config.toml:
//
//   threads = 4                  # for every command that has the flag
//   [chat]                       # for one command
//   system = "Be brief."
//   [models."smollm2*"]          # for models whose name, file name or -m matches the pattern
//   temp = 0.2
//
// Priority, highest first: the command line, a matching model's table (the last one in the file),
// the command's table, the top of the file. CHASKI_CONFIG names another file, or is "none".
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "main/flags/flags.h"

namespace chaski {

struct Defaults {
  std::string path;                  // of the file
  std::vector<std::string> words;    // flags and values, as typed on a command line
  std::map<std::string, int> lines;  // long name of a flag -> the line of the file that sets it

  // "FILE:LINE: " if the text of an error begins with a flag that the file sets, else "".
  std::string place_of(std::string_view error) const;
};

// The file's defaults for a command, without flags in `given` (long name -> value) and flags that
// exclude one of them. Checks the whole file, also the parts for other commands. Throws
// Error(usage) with file, line and key, and Error(io).
Defaults read_defaults(const Manual& command, const std::map<std::string, std::string>& given);

}  // namespace chaski
