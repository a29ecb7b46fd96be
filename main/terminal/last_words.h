// How the program ends when it cannot go on: one line on stderr, an exit status, nothing left
// behind. Nothing here takes memory, because that may be what has run out.
#pragma once
#include <initializer_list>
#include <string_view>

#include "engine/session/engine.h"

namespace chaski {

// "chaski: error: " and the parts as one line; returns the status.
int put_last_line(Exit code, std::initializer_list<std::string_view> parts);

// For a catch (...): the line of the exception that is being handled; returns its status.
int put_exception();

// Async-signal-safe, from any thread: the terminal as it was, temporary files removed, the line,
// and _exit.
[[noreturn]] void end_now(Exit code, std::initializer_list<std::string_view> parts);

}  // namespace chaski
