// The texts of --help and of the man pages, made from the flags, tables and examples that commands
// declare.
#pragma once
#include <string>

#include "main/flags/flags.h"

namespace chaski {

constexpr const char *kVersion = "0.1.0", *kDate = "2026-11-22";  // of the manual

// "chaski quantize [FLAG...] IN OUT [TYPE]"
std::string usage_of(const Manual& command);
std::string help_of(const Manual& command);
std::string help_of_program();

// A topic of `chaski help` that is not a command. help_of_topic() is empty for an unknown name.
struct Topic {
  const char *name, *help;
};
constexpr Topic kTopics[] = {{"formats", "the weight formats of chaski quantize"}};
std::string help_of_topic(const std::string& name);

// In roff, for man(1): chaski-run.1, chaski.1
std::string man_page(const Manual& command);
std::string man_page_of_program();

// Refuses a command line without a required positional argument. `what` is the parser's error,
// which begins with the name of the argument.
[[noreturn]] void refuse_missing(const Manual& manual, std::string_view what);

}  // namespace chaski
