// Ends the program after a fatal error: one line on stderr, an exit status, no temporary files.
// Nothing here allocates memory, because memory may have run out.
#pragma once
#include <initializer_list>
#include <string_view>

#include "engine/session/engine.h"

namespace chaski {

// Prints "chaski: error: " and the parts as one line. Returns the status.
int put_last_line(Exit code, std::initializer_list<std::string_view> parts);

// For a catch (...): prints the line of the current exception. Returns its status.
int put_exception();

// Restores the terminal, removes temporary files, prints the line and calls _exit.
// Async-signal-safe, from any thread.
[[noreturn]] void end_now(Exit code, std::initializer_list<std::string_view> parts);

}  // namespace chaski
