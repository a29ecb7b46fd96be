// Lines of output.h for standard error, with or without a break between words on a terminal.
#pragma once
#include <string>
#include <string_view>

namespace chaski {

// The escaped line, on a terminal with newlines between words where it is full. A line with a
// command stays whole, so that it can be copied.
std::string wrapped_for_stderr(std::string_view line);
// put_note() and put_state() without breaks between words, for code and for JSON.
void put_whole_note(std::string_view line);
void put_whole_state(std::string_view line);

}  // namespace chaski
