// Writes to stdout and stderr. stdout carries what the user asked for, stderr the messages. On a
// terminal, control characters in text of a model or a file are made visible; in a pipe or a file
// the text arrives byte for byte.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// Copies to the clipboard of the terminal at stdout, with an escape sequence that most terminals
// support (OSC 52).
void put_to_clipboard(std::string_view text);
// Writes to stdout without a buffer. Throws Error(io); a closed pipe ends the program with SIGPIPE.
void put(std::string_view text);
// The same for text of a model or a file: on a terminal, control characters other than newline and
// tab become \xNN.
void put_model_text(std::string_view text);
// Writes a line to stderr and makes control characters visible, because it may contain file names.
// On a terminal, it is broken between words. A failure is ignored.
void put_note(std::string_view line);
// "chaski: note: " and the line. Not after be_quiet().
void put_notice(std::string_view line);
// "chaski: error: " and the line, for errors after which the program continues.
void put_error(std::string_view line);
// put_notice() also after be_quiet(): the exit status is 0, but something that was asked for is not
// done.
void put_loud_notice(std::string_view line);
// The last line of a command: what it did. Not after be_quiet().
void put_summary(std::string_view line);
// A line about the state of a chat, dim on a terminal. Not after be_quiet().
void put_state(std::string_view line);
void be_quiet();  // --quiet
bool is_quiet();

// "1 token", "2 tokens"
std::string counted(uint64_t n, const std::string& what);

// Formats rows as lines with two spaces between columns. `sides` has < or > for each column: align
// left or right. A row may have fewer cells than there are columns.
std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view sides,
                  std::string_view indent = "");

// Wraps the words of `text` after `begin` in lines of `width` columns. Lines after the first are
// indented by `column`.
std::string hanging(std::string begin, const std::string& text, size_t column, size_t width);

std::string safe_for_terminal(std::string_view text);
// In faint letters, unless NO_COLOR is set or the terminal is dumb.
std::string dimmed(std::string_view text);
bool stdout_is_terminal();
bool line_is_open();             // stdout is in the middle of a line, as far as chaski wrote it
bool terminal_obeys();           // TERM says that the terminal supports escape sequences
int terminal_width(int fd = 1);  // in columns; 80 if unknown
bool stdin_is_terminal();
bool stderr_is_terminal();
bool standard_input_is_open();  // false: the parent closed it, see main.cpp
// Whether standard input has data or has ended. Waits for at most `milliseconds`.
bool standard_input_is_ready(int milliseconds);
// A pipe with unread bytes, or a file of which nothing was read.
bool standard_input_has_text();

// The most bytes of text that are read: more than any context holds, and a limit for endless input
// such as /dev/zero.
constexpr size_t kMostText = 64 << 20;

// Reads a whole file, or stdin if the name is empty. Throws Error(io).
std::string read_text(const std::string& path);

}  // namespace chaski
