// Reads lines that a person types, with arrow keys and history (libedit), or lines from a pipe. A
// paste of several lines is one piece of text: the line shows "[paste 1: 20 lines]" for it. Tab
// completes with the function of the caller. Alt-Enter ends a line with a backslash. When read()
// returns, the terminal is in its original mode.
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
  // A completion: the whole line, and the part that is shown in a list.
  struct Completion {
    std::string line, shown;
  };
  using Complete = std::function<std::vector<Completion>(const std::string& typed)>;

  // `history`: a file with typed lines, read now and written at the end; empty: none.
  LineEditor(const Interruption& interruption, const std::string& history, Complete complete);
  ~LineEditor();

  // Reads a line without its newline. `interrupted`: the interrupt flag was set, and `line` has the
  // text typed so far. The prompt is shown on a terminal only.
  Result read(const char* prompt, std::string& line);
  // Until the next read(), typed and pasted text is not shown and waits for that read(). Ctrl-C is
  // still a signal. At the end of the program the terminal is restored.
  void hold_typing();
  // Call it regularly meanwhile: after Ctrl-Z and fg the terminal has the mode of the shell.
  void keep_holding();
  // The next line begins with this text, and the user can edit it.
  void suggest(const std::string& text);
  bool pasted() const { return pasted_; }  // the last line contains a paste of several lines
  bool interactive() const { return terminal_ != nullptr; }

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
  bool pasted_ = false;
};

// Completes a path: files and folders whose path begins with `begun`, each after `front`. Hidden
// ones only if the name begins with a dot.
std::vector<LineEditor::Completion> completions_of_files(const std::string& front,
                                                         const std::string& begun);

}  // namespace chaski
