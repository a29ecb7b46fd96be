// Lines that a person types, with arrow keys and history (libedit), or lines from a pipe. What is
// pasted is one piece of text, also if it has several lines: the line shows "[paste 1: 20 lines]"
// in its place. Tab completes what the owner of the editor knows, Alt-Enter ends a line with a
// backslash. The terminal is in
// its own mode again whenever read() has returned.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "main/terminal/signals.h"

namespace chaski {

class LineEditor {
 public:
  enum class Result { line, end, interrupted };  // end: Ctrl-D on an empty line, end of the pipe
  // How a line may go on: whole, and what of it is shown where there are several.
  struct Completion {
    std::string line, shown;
  };
  using Complete = std::function<std::vector<Completion>(const std::string& begun)>;

  // `history`: a file of lines that were typed, read now and written at the end; empty: none.
  LineEditor(const Interruption& interruption, const std::string& history, Complete complete);
  ~LineEditor();

  // The line comes without its newline. `interrupted`: the Interruption was requested; `line` is
  // what had been typed. The prompt is shown on a terminal only.
  Result read(const char* prompt, std::string& line);
  // From now on until the next read() what is typed or pasted is not shown and not lost: it waits.
  // Ctrl-C is a signal all the while. At the end of the program the terminal is as it was.
  void hold_typing();
  // To be called now and then until that: after Ctrl-Z and fg the terminal has the shell's mode.
  void keep_holding();
  // The next line begins with this, as if it had been typed, and waits to be changed.
  void suggest(const std::string& text);
  bool pasted() const { return pasted_; }  // the last line has a paste of several lines
  bool interactive() const { return terminal_ != nullptr; }

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
  bool pasted_ = false;
};

// The files and folders whose path begins so, behind `front`; not hidden ones unless they are asked
// for.
std::vector<LineEditor::Completion> completions_of_files(const std::string& front,
                                                         const std::string& begun);

}  // namespace chaski
