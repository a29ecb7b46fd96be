// Lines that a person types, with arrow keys and history (libedit), or lines from a pipe. The
// terminal is in its own mode again whenever read() has returned.
#pragma once
#include <memory>
#include <string>

#include "main/signals.h"

namespace chaski {

class LineEditor {
 public:
  enum class Result { line, end, interrupted };  // end: Ctrl-D on an empty line, end of the pipe

  // The prompt is shown on a terminal only.
  LineEditor(std::string prompt, const Interruption& interruption);
  ~LineEditor();

  // The line comes without its newline. `interrupted`: the Interruption was requested; `line` is
  // what had been typed.
  Result read(std::string& line);
  bool interactive() const { return terminal_ != nullptr; }

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace chaski
