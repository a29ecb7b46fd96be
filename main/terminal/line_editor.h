// Reads messages that a person types, with arrow keys and history (libedit), or from a pipe. A
// message of several lines is put between two """, has a backslash at the end of each line, or, on
// a terminal, Alt-Enter between its lines; all of them can be edited until Enter. A paste of
// several lines is one piece of text: the line shows "[paste 1: 20 lines]" for it. Tab completes
// with the function of the caller. When read() returns, the terminal is in its original mode.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "main/terminal/signals.h"

namespace chaski {

class LineEditor {
 public:
  enum class Result { line, end, interrupted };  // end: Ctrl-D on an empty line, end of the pipe
  struct Message {
    Result result = Result::line;
    // Without the last newline. If interrupted, the text typed so far.
    std::string text;
    // It begins with a paste or is between two """, so it is never a command.
    bool literal = false;
    std::optional<size_t> dropped = {};  // bytes of a paste that Ctrl-C interrupted
    std::string typed = {};              // the line in the editor, with placeholders of pastes
  };
  // A completion: the whole line, and the part that is shown in a list.
  struct Completion {
    std::string line, shown;
  };
  using Complete = std::function<std::vector<Completion>(const std::string& typed)>;

  // `history`: a file with typed messages, which are added when they are sent; empty: none.
  LineEditor(const Interruption& interruption, const std::string& history, Complete complete);
  ~LineEditor();

  // Reads a message. The prompt is shown on a terminal only.
  Message read(const char* prompt);
  // Until the next read(), typed and pasted text is not shown and waits for that read(). Ctrl-C is
  // still a signal. At the end of the program the terminal is restored.
  void hold_typing();
  // Keyboard::keep_holding()
  void keep_holding();
  // The next message begins with this text, and the user can edit it.
  void suggest(const std::string& text);
  // Whether the screen can show all of a text while it is edited. If not, it shows the end.
  bool fits_screen(const std::string& text) const;
  // The line that sends this text as a message: the text, or a placeholder if it is long, or if the
  // editor would change it, run it as a command, or send it to the terminal as control characters.
  std::string line_of(const std::string& text);
  // The key Up recalls this line, which is a Message::typed or a result of line_of(). The history
  // file does not get it.
  void recall(const std::string& line);
  // The same, and later chats have the line too.
  void remember(const std::string& line);
  bool interactive() const { return terminal_ != nullptr; }

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
  bool has_read_ = false;  // a line of a pipe
};

// Completes a path: files and folders whose path begins with `begun`, each after `front`. Hidden
// ones only if the name begins with a dot.
std::vector<LineEditor::Completion> completions_of_files(const std::string& front,
                                                         const std::string& begun);

}  // namespace chaski
