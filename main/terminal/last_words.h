// Ends the program after a fatal error: one line on stderr, an exit status, no temporary files.
// Nothing here but set_parting_line() allocates memory, because memory may have run out.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/session/engine.h"

namespace chaski {

// Prints "chaski: error: " and the parts as one line. Returns the status.
int put_last_line(Exit code, std::initializer_list<std::string_view> parts);

// For a catch (...): prints the line of the current exception. Returns its status.
int put_exception();

// What Ctrl-C or SIGTERM prints before it ends the program: what is kept of long work, and how to
// go on. Depends on whether `file` exists at that time.
struct PartingLine {
  std::string file, if_there, otherwise;
};
void set_parting_line(const PartingLine& line);
// Async-signal-safe. Prints nothing if no line was set.
void put_parting_line();

// Restores the terminal, removes temporary files, prints the line and calls _exit.
// Async-signal-safe, from any thread.
[[noreturn]] void end_now(Exit code, std::initializer_list<std::string_view> parts);

}  // namespace chaski
