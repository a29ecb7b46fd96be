#include "main/terminal/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/passes/mpi_link.h"
#include "engine/session/engine.h"
#include "engine/text/word_wrap.h"
#include "main/terminal/base64.h"
#include "main/terminal/wrapped.h"

namespace chaski {

namespace {

// mpirun gives rank 0 a terminal of its own and copies what it writes to mpirun's standard output.
bool parent_writes_to_terminal() {
  const std::string out = fmt::format("/proc/{}/fd/{}", ::getppid(), STDOUT_FILENO);
  const int file = ::open(out.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  const bool terminal = file < 0 || ::isatty(file) == 1;  // to be safe
  if (file >= 0) ::close(file);
  return terminal;
}

bool quiet = false;
bool open_line = false;  // stdout is in the middle of a line

// Returns false with errno set. A signal may interrupt a write.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(size_t(n));
  }
  return true;
}

std::string read_all(int fd, const std::string& name) {
  std::string text;
  char part[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Exit::io, "{}: cannot be read: {}", name, std::strerror(errno));
    if (n == 0) return text;
    text.append(part, size_t(n));
    if (text.size() > kMostText)
      fail(Exit::io, "{} has more than {} bytes of text, the most that chaski reads", name,
           kMostText);
  }
}

void put_line(const std::string& line) {
  static const bool one_screen = [] {
    struct stat out, err;
    return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
  }();
  const char* first = one_screen && std::exchange(open_line, false) ? "\n" : "";
  (void)write_all(STDERR_FILENO, first + line + "\n");
}

std::string broken_between_words(const std::string& line) {
  if (!stderr_is_terminal() || !terminal_obeys()) return escaped(line);
  std::string lines = hanging("", escaped(line), 0, size_t(terminal_width(STDERR_FILENO)));
  lines.pop_back();
  return lines;
}

void put_message(const std::string& line) { put_line(wrapped_for_stderr(line)); }

std::string as_state(const std::string& line) { return stderr_is_terminal() ? dimmed(line) : line; }

bool is_control(unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }

}  // namespace

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1 && (mpi_ranks() == 0 || parent_writes_to_terminal());
}
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

bool standard_input_is_open() { return (::fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) != O_WRONLY; }

bool standard_input_is_ready(int milliseconds) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, milliseconds) != 0;
}

bool standard_input_has_text() {
  struct stat s;
  if (::fstat(STDIN_FILENO, &s) != 0) return false;
  // A shell loop has read a part of its file.
  if (S_ISREG(s.st_mode)) return s.st_size > 0 && ::lseek(STDIN_FILENO, 0, SEEK_CUR) == 0;
  int bytes = 0;
  return S_ISFIFO(s.st_mode) && ::ioctl(STDIN_FILENO, FIONREAD, &bytes) == 0 && bytes > 0;
}

void put(std::string_view text) {
  if (!text.empty()) open_line = text.back() != '\n';
  if (!write_all(STDOUT_FILENO, text))
    fail(Exit::io, "standard output: cannot be written: {}", std::strerror(errno));
}

void put_model_text(std::string_view text) {
  static const bool terminal = stdout_is_terminal();
  put(terminal ? safe_for_terminal(text) : std::string(text));
}

void put_to_clipboard(std::string_view text) {
  if (!write_all(STDOUT_FILENO, "\033]52;c;" + base64(text) + "\a"))
    fail(Exit::io, "standard output: cannot be written: {}", std::strerror(errno));
}

std::string wrapped_for_stderr(std::string_view line) {
  const bool command = line.find('"') != line.npos || line.find("chaski ") != line.npos;
  return command ? escaped(line) : broken_between_words(std::string(line));
}

void put_note(std::string_view line) { put_line(broken_between_words(std::string(line))); }
void put_whole_note(std::string_view line) { put_line(escaped(line)); }

void put_state(std::string_view line) {
  if (!quiet) put_line(as_state(broken_between_words(std::string(line))));
}
void put_whole_state(std::string_view line) {
  if (!quiet) put_line(as_state(escaped(line)));
}

void put_loud_notice(std::string_view line) { put_message("chaski: note: " + std::string(line)); }

void put_notice(std::string_view line) {
  if (!quiet) put_loud_notice(line);
}

void put_error(std::string_view line) { put_message("chaski: error: " + std::string(line)); }

void put_summary(std::string_view line) {
  if (!quiet) put_whole_note(line);
}

void be_quiet() { quiet = true; }
bool is_quiet() { return quiet; }

std::string counted(uint64_t n, const std::string& what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view sides,
                  std::string_view indent) {
  std::vector<size_t> widths(sides.size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line(indent);
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - row[i].size(), ' ');
      line += (i > 0 ? "  " : "") + (sides[i] == '>' ? gap + row[i] : row[i] + gap);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string hanging(std::string begin, const std::string& text, size_t column, size_t width) {
  std::string all, line = std::move(begin);
  size_t columns = terminal_columns(line);
  bool first = true;
  for (size_t at = 0; at < text.size(); first = false) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string next = text.substr(at, end - at);
    at = end + 1;
    if (!first && columns + 1 + terminal_columns(next) > width) {
      all += line + "\n";
      line.assign(column, ' ');
      columns = column;
      first = true;
    }
    line += (first ? "" : " ") + next;
    columns += (first ? 0 : 1) + terminal_columns(next);
  }
  return all + line + "\n";
}

std::string safe_for_terminal(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 .. U+009F: another encoding of the control sequences that begin with ESC.
    const bool c1 =
        c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c1) ++i;
    if (is_control(c) || c1)
      out += fmt::format("\\x{:02x}", c1 ? static_cast<unsigned char>(text[i]) : c);
    else
      out += char(c);
  }
  return out;
}

bool line_is_open() { return open_line; }

int terminal_width(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool terminal_obeys() {
  static const char* term = std::getenv("TERM");
  return term && *term && std::string_view(term) != "dumb";
}

std::string dimmed(std::string_view text) {
  static const char* no_color = std::getenv("NO_COLOR");
  if (text.empty() || !terminal_obeys() || (no_color && *no_color)) return std::string(text);
  return "\033[2m" + std::string(text) + "\033[22m";
}

std::string read_text(const std::string& path) {
  if (path.empty()) return read_all(STDIN_FILENO, "standard input");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(Exit::io, "{}: cannot be opened: {}", path, std::strerror(errno));
  struct Closing {
    int fd;
    ~Closing() { ::close(fd); }
  } closing{fd};
  struct stat st;
  if (::fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && size_t(st.st_size) > kMostText)
    fail(Exit::io, "{} has {} bytes of text, expected at most {}", path, st.st_size, kMostText);
  return read_all(fd, path);
}

}  // namespace chaski
