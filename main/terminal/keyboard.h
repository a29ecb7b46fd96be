// The bytes that a person types or pastes at the terminal, one after the other, with Ctrl-C and
// with changes of the window between them. Holds typed text back during an answer.
#pragma once
#include <termios.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "main/terminal/signals.h"

namespace chaski {

class Keyboard {
 public:
  // `on_change` sets the terminal mode again: after Ctrl-Z and fg, and after a change of the width.
  Keyboard(const Interruption& interruption, std::function<void()> on_change);
  ~Keyboard();
  Keyboard(const Keyboard&) = delete;

  enum class Key { byte, changed, end, interrupted };
  // Waits for the next byte. `interrupted`: bytes before Ctrl-C are dropped. `changed`: on_change()
  // was called, and the line must be drawn again; not in the middle of a character, a key or a
  // paste (`inside`).
  Key read(char& byte, bool inside);
  // These bytes come before the next ones.
  void put_back(std::string_view bytes) { waiting_.insert(0, bytes); }
  bool has_waiting() const { return !waiting_.empty(); }
  bool is_interrupted() const { return interruption_.requested(); }

  // After an escape: the rest of the key if it is in the string. Bytes that are not are put back.
  bool take(std::string_view rest_of_key);
  // The text of a paste, from its mark to the mark of its end. Nothing if Ctrl-C interrupted it or
  // if it is longer than chaski reads: then the rest of it is read and dropped.
  std::optional<std::string> rest_of_paste();
  // Bytes of the last paste that was dropped; nothing: none since the last call.
  std::optional<size_t> dropped();

  // Until release(), typed text is not shown and waits. Ctrl-C is still a signal.
  void hold();
  // Call it regularly meanwhile. It reads typed bytes, so that Ctrl-C never waits for room in the
  // terminal, and sets the mode again when fg ends a stop by Ctrl-Z.
  void keep_holding();
  void release();

 private:
  Key next(char& byte, bool inside);
  void drop_rest_of_paste(std::string end);
  void set_waiting(termios mode);

  const Interruption& interruption_;
  const std::function<void()> on_change_;
  // The terminal, opened again without blocking. Ctrl-C drops typed bytes, even those that poll()
  // has just reported, and a read from standard input would then block.
  int keyboard_;
  std::string waiting_;    // put back
  std::deque<char> held_;  // typed since hold()
  std::optional<size_t> dropped_;
  std::optional<termios> shown_;  // the terminal mode before hold()
};

}  // namespace chaski
