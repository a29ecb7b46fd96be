// Flags and commands that users know from llama.cpp's tools and from ollama, and what chaski does
// with each. A flag that a chaski command declares itself has priority over a row here.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

struct Habit {
  const char* command;  // the chaski command that it applies to; "": to any
  // As typed, separated by spaces: flags with their dashes, and "-" for "_"; commands without.
  const char* names;
  // The flag that does the same, perhaps with a value. "": chaski always does so. Otherwise a
  // sentence that says how to do it with chaski.
  const char* here;
  // no: the sentence is an error. Otherwise it is a note and the flag is skipped: alone, with the
  // value after it, or with the next word if that is on, off, auto, 0 or 1.
  enum class Passed { no, alone, with_value, with_switch } passed = Passed::no;
  // Of a flag that sets a part of what `here` sets: the note if the other part is not given.
  const char* part = "";
};

std::span<const Habit> habits();

// The first matching row for a word after `command`, or null. `command` is "" for the word in the
// place of a command. A row that names a flag matches only if `has_flag` says that the command has
// it.
const Habit* find_habit(std::string_view command, std::string_view word,
                        const std::function<bool(const std::string&)>& has_flag);

std::vector<std::string> words_in(const std::string& text);  // separated by spaces
bool is_flag(const std::string& word);                       // "-n" or "--tokens", not "-1" or "-"

// chaski's name of a value: "q8" for "q8_0". Returns `value` itself if it has no other name.
std::string_view value_here(std::string_view value);

}  // namespace chaski
