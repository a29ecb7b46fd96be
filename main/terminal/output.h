// The two streams and what may stand on them. stdout: what the user asked for, nothing else.
// stderr: lines about it. Text from a model or a file is made safe when it goes to a terminal; in a
// pipe or a file it arrives byte for byte.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// To the clipboard of the terminal at stdout, by an escape sequence that most know (OSC 52).
void put_to_clipboard(std::string_view text);
// To stdout, at once. Throws Error(io) when it cannot be written; a closed pipe ends the program by
// SIGPIPE.
void put(std::string_view text);
// The same, for text of a model or a file: on a terminal, control characters other than newline and
// tab become \xNN.
void put_model_text(std::string_view text);
// A line to stderr, with what a terminal would obey made visible: names of files are in it. Failing
// to write it is not an error.
void put_note(std::string_view line);
// The same, of what nobody asked for: "chaski: note: " and the line. Not after be_quiet().
void put_notice(std::string_view line);
// The same, of what cannot be done while the program goes on: "chaski: error: " and the line.
void put_error(std::string_view line);
// The same, of what a command did: its last line. Not after be_quiet().
void put_summary(std::string_view line);
// The same, dim on a terminal: how things are, when somebody is there to see it.
void put_state(std::string_view line);
void be_quiet();  // --quiet
bool is_quiet();

// "1 token", "2 tokens"
std::string counted(uint64_t n, const std::string& what);

// Rows as lines, two spaces between columns, each as wide as its widest cell. `sides` has a < or >
// for each column: where its cells stand. A row may have fewer cells than there are columns.
std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view sides,
                  std::string_view indent = "");

// `begin`, and behind it the words of `text` in lines of `width` columns; lines after the first
// are indented by `column`.
std::string hanging(std::string begin, const std::string& text, size_t column, size_t width);

std::string safe_for_terminal(std::string_view text);
// In faint letters, unless NO_COLOR is set or the terminal is a dumb one.
std::string dimmed(std::string_view text);
bool stdout_is_terminal();
bool line_is_open();             // of stdout, as far as put() and notes of this program know
bool terminal_obeys();           // as TERM says: it knows escape sequences
int terminal_width(int fd = 1);  // in columns; 80 where nobody knows
bool stdin_is_terminal();
bool stderr_is_terminal();

// The most bytes of text that are read: more than any context holds, and a limit for what never
// ends, such as /dev/zero.
constexpr size_t kMostText = 64 << 20;

// The whole of a file, or of stdin for an empty name. Throws Error(io).
std::string read_text(const std::string& path);

}  // namespace chaski
