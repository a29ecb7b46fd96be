// What Ctrl-C, SIGTERM and a closed pipe do, and faults that come as signals. By default they end
// the program, as the shell expects (130, 143, 141), after the terminal is as it was and temporary
// files are gone. While an Interruption lives, they ask for the end of an answer instead.
#pragma once
#include <atomic>

namespace chaski {

void handle_signals();  // once, at the start

class Interruption {
 public:
  enum class Scope {
    nothing,  // both end the program, as without an Interruption
    answer,   // SIGINT only, as often as it comes; SIGTERM still ends the program
    program,  // SIGINT and SIGTERM; a second one ends the program at once
  };
  explicit Interruption(Scope scope);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  const std::atomic<bool>& requested() const;
  int signal() const;  // the last one, 0 if there was none
  // Can be read from as long as requested() holds: for poll(), which a signal that comes just
  // before it, or to another thread, would not end. -1 if there is none.
  int descriptor() const;
  void reset();
};

// Ends the program as the default action of `signal` would, so that a shell sees why and its loops
// stop too.
[[noreturn]] void end_by_signal(int signal);

// Whether the terminal is this program's, and not the shell's that put it into the background.
// Async-signal-safe.
bool has_the_terminal();

// Async-signal-safe: the terminal as it was, temporary files removed.
void restore_and_remove();

// The line editor says so while it has the terminal in its own mode.
void terminal_is_changed(bool changed);
// Has the terminal mark what is pasted (ESC [200~ ... ESC [201~), or no longer.
void mark_pastes(bool on);

}  // namespace chaski
