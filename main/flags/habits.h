// What people have in their fingers from other programs: flags and commands of llama.cpp's tools
// and of ollama, and what stands for each of them here. Not for flags of chaski's own: a command
// that declares a flag has it, whatever is said here.
#pragma once
#include <span>
#include <string_view>

namespace chaski {

struct Habit {
  const char* command;  // of chaski, to which it is said; "": to any
  // As they are typed, with a space between two: flags with their dashes, and "-" for "_"; commands
  // without.
  const char* names;
  // The flag that does it, perhaps with its value. "": chaski does so anyway. Otherwise a sentence:
  // how it is done here.
  const char* here;
  // Whether the sentence is a note, and what was typed is passed over: the flag alone, with the
  // value behind it, or with on, off, auto, 0 or 1 if that stands there. Otherwise it is an error.
  enum class Passed { no, alone, with_value, with_switch } passed = Passed::no;
};

// The first row that fits counts. A row that names a flag fits the commands that have this flag.
std::span<const Habit> habits();

// What a value is called here: "q8" for "q8_0". The same for what has no other name.
std::string_view value_here(std::string_view value);

}  // namespace chaski
