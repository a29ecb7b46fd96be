#include "main/terminal/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <filesystem>
#include <iostream>
#include <optional>
#include <vector>

#include "engine/machine/cache_folder.h"
#include "engine/session/engine.h"
#include "main/terminal/output.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace {

constexpr int kHistory = 1000;     // lines
constexpr size_t kMostShown = 60;  // completions in a list
constexpr char kRedraw = 0x1f;     // a key that is bound to redrawing the line
constexpr char kEscape = 0x1b;
constexpr std::string_view kPasteBegins = "[200~", kPasteEnds = "\033[201~";  // after an escape
// Alt-Enter types Ctrl-E (to the end of the line), a backslash and Enter.
constexpr const char* kContinueLine = "\005\\\r";
constexpr int kSequenceMs = 50;  // most time between the bytes of one key

// Set by signal handlers. `continued`: the shell had the terminal (Ctrl-Z and fg) since the last
// check. `changes`: an eventfd, readable after that or after a change of the width. It is needed
// because a signal may arrive in another thread than the one in poll().
std::atomic<bool> continued = false;
int changes = -1;

void on_change(int signal) {
  if (signal == SIGCONT) continued = true;
  const int error = errno;
  ::eventfd_write(changes, 1);
  errno = error;
}

int columns() {
  winsize size{};
  return ::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Typed UTF-8 needs a UTF-8 locale. Debian always has C.UTF-8.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

bool has_controls(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

// Converts the line ends of a terminal (\r) to \n.
std::string with_line_feeds(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r')
      out += text[i];
    else if (i + 1 == text.size() || text[i + 1] != '\n')
      out += '\n';
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

struct LineEditor::Terminal {
  Terminal(const Interruption& interruption, const std::string& history, Complete complete);
  ~Terminal();
  bool key(char& byte);
  bool next_byte(char& byte);
  bool paste_begins();
  void take_paste();
  void type_in(std::string text);
  int complete();
  std::string placeholder(size_t paste) const;
  int next_character(wchar_t* out);
  Result read(const char* prompt, std::string& line, bool& pasted);
  bool is_drawn_wrong();
  void hold_typing();
  void keep_holding();
  void set_waiting(termios mode);
  void show_again();

  const char* prompt = "";
  std::string typed, waiting;       // waiting: bytes to return before the next key
  std::vector<std::string> pastes;  // of the whole chat, because history may recall a line
  const Interruption& interruption;
  EditLine* editor;
  History* history;
  // The terminal, opened again without blocking. Ctrl-C drops typed bytes, even those that poll()
  // has just reported, and a read from standard input would then block.
  int keyboard;
  size_t pastes_before = 0;          // number of pastes before this line
  std::vector<std::string> entered;  // lines of this chat for the history file
  const std::string history_file;
  const Complete completions;
  bool interrupted = false;
  // In the middle of a character, a key or a paste: the line cannot be redrawn.
  bool inside = false, redraws = false;
  ptrdiff_t drawn = 0;           // bytes of the line at the last check
  std::optional<termios> shown;  // the terminal mode before hold_typing()
};

LineEditor::Terminal::Terminal(const Interruption& interruption, const std::string& history_file,
                               Complete complete)
    : interruption(interruption), history_file(history_file), completions(std::move(complete)) {
  use_utf8();
  keyboard = ::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (keyboard < 0) keyboard = STDIN_FILENO;
  changes = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (const int signal : {SIGWINCH, SIGCONT}) std::signal(signal, on_change);
  editor = el_init("chaski", stdin, stdout_is_terminal() ? stdout : stderr, stderr);
  history = history_init();
  if (!editor || !history) fail(Exit::memory, "not enough memory for the line editor");
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kHistory);
  ::history(history, &event, H_SETUNIQUE, 1);
  if (!history_file.empty())
    for (const std::string& line : kept_lines(history_file))
      ::history(history, &event, H_ENTER, (line + "\n").c_str());
  el_set(editor, EL_CLIENTDATA, this);
  el_set(
      editor, EL_PROMPT, +[](EditLine* e) {
        Terminal* self;
        el_get(e, EL_CLIENTDATA, &self);
        return const_cast<char*>(self->prompt);
      });
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, ::history, history);
  el_set(
      editor, EL_GETCFN, +[](EditLine* e, wchar_t* out) {
        Terminal* self;
        el_get(e, EL_CLIENTDATA, &self);
        return self->next_character(out);
      });
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(editor, EL_BIND, "^_", "ed-redisplay", nullptr);
  el_set(
      editor, EL_ADDFN, "complete", "completes a line", +[](EditLine* e, int) {
        Terminal* self;
        el_get(e, EL_CLIENTDATA, &self);
        return self->complete();
      });
  el_set(editor, EL_BIND, "^I", "complete", nullptr);
}

LineEditor::Terminal::~Terminal() {
  show_again();
  if (!history_file.empty()) add_lines(history_file, entered, kHistory);
  if (history) history_end(history);
  if (editor) el_end(editor);
  if (keyboard != STDIN_FILENO) ::close(keyboard);
}

// Reads a byte. False at the end of input and at Ctrl-C. After Ctrl-Z and fg it sets the terminal
// mode again and redraws the line.
bool LineEditor::Terminal::key(char& byte) {
  while (!(interrupted = interruption.requested())) {
    pollfd in[] = {
        {STDIN_FILENO, POLLIN, 0}, {changes, POLLIN, 0}, {interruption.descriptor(), POLLIN, 0}};
    const int ready = ::poll(in, 3, -1);
    if (interruption.requested()) continue;
    if (ready < 0 && errno != EINTR) return false;
    eventfd_t ignored;
    if (ready <= 0 || ::eventfd_read(changes, &ignored) != 0) {
      if (ready <= 0 || in[0].revents == 0) continue;  // the interrupt flag is set in a moment
      const ssize_t n = ::read(keyboard, &byte, 1);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;  // Ctrl-C dropped the bytes
      return n == 1;
    }
    el_resize(editor);
    el_set(editor, EL_PREP_TERM, 0);  // libedit does not set a mode that it believes to be set
    el_set(editor, EL_PREP_TERM, 1);
    if (continued.exchange(false) && terminal_obeys()) mark_pastes(true);  // shells turn that off
    redraws = true;
    if (inside) continue;
    byte = '\0';  // nothing was typed
    return true;
  }
  return false;
}

bool LineEditor::Terminal::next_byte(char& byte) {
  if (waiting.empty()) return key(byte);
  byte = waiting[0];
  waiting.erase(0, 1);
  return true;
}

// After an escape: true if a paste follows. If not, the bytes that were read wait.
bool LineEditor::Terminal::paste_begins() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  char byte;
  inside = true;
  while (waiting != kPasteBegins && kPasteBegins.starts_with(waiting) &&
         ::poll(&in, 1, kSequenceMs) == 1 && key(byte))
    waiting += byte;
  inside = waiting == kPasteBegins;
  if (inside) waiting.clear();
  return inside;
}

std::string LineEditor::Terminal::placeholder(size_t paste) const {
  const std::string& text = pastes[paste];
  return fmt::format("[paste {}: {} lines]", paste + 1,
                     std::count(text.begin(), text.end(), '\n') + 1);
}

// Reads the rest of a paste and inserts it.
void LineEditor::Terminal::take_paste() {
  std::string text;
  char byte;
  while (!text.ends_with(kPasteEnds) && text.size() < kMostText && key(byte)) text += byte;
  if (text.ends_with(kPasteEnds)) text.resize(text.size() - kPasteEnds.size());
  type_in(with_line_feeds(text));
}

// Inserts text as if it was typed: one line unchanged, several lines as a placeholder.
void LineEditor::Terminal::type_in(std::string text) {
  if (has_controls(text)) {
    pastes.push_back(std::move(text));
    waiting += placeholder(pastes.size() - 1);
  } else {
    waiting += text;
  }
}

// Extends the line by the letters that all completions share. If there are none, shows the list.
int LineEditor::Terminal::complete() {
  const LineInfo* line = el_line(editor);
  const std::string typed_part(line->buffer, line->cursor);
  const std::vector<Completion> all = completions(typed_part);
  if (typed_part.empty() || all.empty()) return CC_NORM;
  const std::string& first = all[0].line;
  size_t common = first.size();
  for (const Completion& other : all)
    common = size_t(std::mismatch(first.begin(), first.begin() + ptrdiff_t(common),
                                  other.line.begin(), other.line.end())
                        .first -
                    first.begin());
  const auto is_inside = [&](size_t at) {  // inside a UTF-8 character
    return at < first.size() && (static_cast<unsigned char>(first[at]) & 0xc0) == 0x80;
  };
  while (common > typed_part.size() && is_inside(common)) --common;
  if (common > typed_part.size())
    return el_insertstr(editor,
                        first.substr(typed_part.size(), common - typed_part.size()).c_str()) == 0
               ? CC_REFRESH
               : CC_ERROR;
  if (all.size() == 1) return CC_NORM;
  std::string shown;
  for (size_t i = 0; i < std::min(all.size(), kMostShown); ++i)
    shown += (i > 0 ? "  " : "") + all[i].shown;
  if (all.size() > kMostShown) shown += fmt::format("  and {} more", all.size() - kMostShown);
  put_note("");
  put_note(shown);
  return CC_REDISPLAY;
}

// True after an insertion before the place where a line wraps. libedit shifts the text after it on
// the screen, but does not move the last character of a row to the next row.
bool LineEditor::Terminal::is_drawn_wrong() {
  const LineInfo* line = el_line(editor);
  const ptrdiff_t size = line->lastchar - line->buffer;
  const bool changed = std::exchange(drawn, size) != size;
  // While the history is searched, the line contains a line break and the search text.
  const bool searches = std::find(line->buffer, line->lastchar, '\n') != line->lastchar;
  return changed && !searches && line->cursor < line->lastchar &&
         ptrdiff_t(std::string_view(prompt).size()) + size >= columns();
}

int LineEditor::Terminal::next_character(wchar_t* out) {
  if (waiting.empty() && is_drawn_wrong()) redraws = true;
  std::mbstate_t state{};
  char byte;
  inside = false;
  // Not while the rest of a key waits: the letters of an arrow key would go into the line.
  const auto redraws_now = [&] {
    return !inside && waiting.empty() && std::exchange(redraws, false);
  };
  while (redraws_now() ? (byte = kRedraw, true) : next_byte(byte)) {
    if (byte == '\0' && redraws) continue;
    if (byte == kEscape && waiting.empty()) {
      if (paste_begins()) {
        take_paste();
        inside = false;
        continue;
      }
      if (waiting == "\r" || waiting == "\n") {
        waiting = kContinueLine;
        continue;
      }
    }
    const size_t n = std::mbrtowc(out, &byte, 1, &state);
    inside = n == size_t(-2);
    if (inside) continue;  // in the middle of a character
    if (n != size_t(-1)) return 1;
    state = {};  // drops a byte that is not UTF-8
  }
  const LineInfo* line = el_line(editor);
  typed.assign(line->buffer, line->lastchar - line->buffer);
  return interrupted ? -1 : 0;
}

// Without ICANON a paste may be longer than the longest line of the system. Without ICRNL the line
// editor receives Enter unchanged.
void LineEditor::Terminal::hold_typing() {
  termios mode;
  if (shown || ::tcgetattr(STDIN_FILENO, &mode) != 0) return;
  shown = mode;
  continued = false;
  set_waiting(mode);
}

void LineEditor::Terminal::keep_holding() {
  if (shown && has_the_terminal() && continued.exchange(false)) set_waiting(*shown);
}

void LineEditor::Terminal::set_waiting(termios mode) {
  mode.c_lflag &= ~tcflag_t(ECHO | ICANON);
  mode.c_lflag |= NOFLSH;  // Ctrl-C stops the answer and keeps typed text
  mode.c_iflag &= ~tcflag_t(ICRNL);
  mode.c_cc[VMIN] = 1, mode.c_cc[VTIME] = 0;
  terminal_is_changed(true);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &mode);
  if (terminal_obeys()) mark_pastes(true);
}

void LineEditor::Terminal::show_again() {
  if (!shown) return;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &*shown);
  shown.reset();
  if (terminal_obeys()) mark_pastes(false);
  terminal_is_changed(false);
}

LineEditor::Result LineEditor::Terminal::read(const char* prompt_text, std::string& line,
                                              bool& pasted) {
  interrupted = false;
  prompt = prompt_text;
  show_again();
  terminal_is_changed(true);
  if (terminal_obeys()) mark_pastes(true);
  // Otherwise the terminal echoes until el_gets() has printed the prompt.
  el_set(editor, EL_PREP_TERM, 1);
  int count = 0;
  const char* text = el_gets(editor, &count);
  if (terminal_obeys()) mark_pastes(false);
  terminal_is_changed(false);
  if (interrupted) {
    el_reset(editor);
    line = typed;
    return Result::interrupted;
  }
  if (!text || count <= 0) return Result::end;
  line.assign(text, size_t(count));
  HistEvent event;
  if (line.find_first_not_of(" \t\n") != std::string::npos)
    ::history(history, &event, H_ENTER, line.c_str());
  if (line.ends_with('\n')) line.pop_back();
  const std::string shown = line;
  const size_t old = pastes_before;
  for (size_t i = 0; i < pastes.size(); ++i) {
    const std::string place = placeholder(i);
    const size_t at = line.find(place);
    if (at == std::string::npos) continue;
    line.replace(at, place.size(), pastes[i]);
    pasted = true;
  }
  for (size_t i = old; i < pastes.size(); ++i)
    if (shown.find(placeholder(i)) == std::string::npos &&
        shown.find(placeholder(i).substr(0, placeholder(i).find(':'))) != std::string::npos) {
      put_error("a part of the placeholder " + placeholder(i) +
                " was deleted: the line is dropped, please paste again");
      line.clear();
    }
  pastes_before = pastes.size();
  // Pastes are not kept in the history file, so lines with placeholders are left out.
  if (!pasted && shown.find_first_not_of(" \t") != std::string::npos) entered.push_back(shown);
  return Result::line;
}

LineEditor::LineEditor(const Interruption& interruption, const std::string& history,
                       Complete complete) {
  if (stdin_is_terminal())
    terminal_ = std::make_unique<Terminal>(interruption, history, std::move(complete));
}
LineEditor::~LineEditor() = default;

void LineEditor::suggest(const std::string& text) {
  if (terminal_) terminal_->type_in(text);
}

void LineEditor::hold_typing() {
  if (terminal_) terminal_->hold_typing();
}

void LineEditor::keep_holding() {
  if (terminal_) terminal_->keep_holding();
}

LineEditor::Result LineEditor::read(const char* prompt, std::string& line) {
  pasted_ = false;
  if (terminal_) return terminal_->read(prompt, line, pasted_);
  line.clear();
  for (int c; (c = std::cin.get()) != '\n'; line += char(c)) {
    if (c == std::istream::traits_type::eof()) {
      if (std::ferror(stdin))
        fail(Exit::io, "standard input: cannot be read: {}", std::strerror(errno));
      return line.empty() ? Result::end : Result::line;
    }
    if (line.size() == kMostText)
      fail(Exit::io, "standard input: a line has more than {} bytes, the longest that chaski reads",
           kMostText);
  }
  return Result::line;
}

std::vector<LineEditor::Completion> completions_of_files(const std::string& front,
                                                         const std::string& begun) {
  namespace fs = std::filesystem;
  const size_t name_at = begun.rfind('/') + 1;  // 0 without a slash
  const std::string folder = begun.substr(0, name_at), name = begun.substr(name_at);
  std::vector<LineEditor::Completion> all;
  std::error_code none;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, none), end; !none && at != end;
       at.increment(none)) {
    std::string found = at->path().filename();
    if (!found.starts_with(name) || (name.empty() && found[0] == '.') || has_controls(found))
      continue;
    std::error_code unknown;
    if (at->is_directory(unknown)) found += '/';
    all.push_back({front + folder + found, found});
  }
  std::ranges::sort(all, {}, &LineEditor::Completion::line);
  return all;
}

}  // namespace chaski
