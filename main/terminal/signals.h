// Handles Ctrl-C, SIGTERM, closed pipes, and faults that arrive as signals. By default they restore
// the terminal, remove temporary files and end the program with the status that a shell expects
// (130, 143, 141). While an Interruption exists, they set a flag that ends the answer.
#pragma once
#include <atomic>

namespace chaski {

void handle_signals();  // called once, at the start

class Interruption {
 public:
  enum class Scope {
    nothing,  // no signal sets the flag
    answer,   // each SIGINT sets the flag
    program,  // the first SIGINT or SIGTERM sets the flag, a second one ends the program
  };
  explicit Interruption(Scope scope);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  const std::atomic<bool>& requested() const;
  int signal() const;  // the last signal; 0: none
  // Readable while requested() is true. For poll(): a signal just before poll(), or in another
  // thread, does not end poll() itself. -1 before handle_signals().
  int descriptor() const;
  void request();  // sets the flag as a signal does
  void reset();
};

// Ends the program with the default action of `signal`, so that the shell sees the reason and its
// loops stop too.
[[noreturn]] void end_by_signal(int signal);

// False if the shell has put the program into the background. Async-signal-safe.
bool has_the_terminal();

// Restores the terminal and removes temporary files. Async-signal-safe.
void restore_and_remove();

// The line editor calls this when it changes the mode of the terminal and when it restores it.
void terminal_is_changed(bool changed);
// Turns bracketed paste on or off: the terminal then marks pastes (ESC [200~ ... ESC [201~).
void mark_pastes(bool on);

}  // namespace chaski
