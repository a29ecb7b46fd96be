#include "main/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <iostream>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "main/output.h"
#include "main/signals.h"

namespace chaski {

namespace {

constexpr int kHistory = 1000;  // lines
constexpr char kRedraw = 0x1f;  // a key that libedit is told to draw the line again for
constexpr char kEscape = 0x1b;
constexpr std::string_view kPasteBegins = "[200~", kPasteEnds = "\033[201~";  // behind an escape
constexpr int kSequenceMs = 50;  // the bytes of one key come together

// UTF-8 typed by the user needs a locale that has it; Debian's C.UTF-8 is always there.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

bool knows_pastes() {
  const char* term = std::getenv("TERM");
  return term && *term && std::string_view(term) != "dumb";
}

bool has_controls(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

// As keys they would be line ends of the terminal's own kind.
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
  explicit Terminal(const Interruption& interruption);
  ~Terminal();
  bool key(char& byte);
  bool next_byte(char& byte);
  bool paste_begins();
  void take_paste();
  std::string place_of(size_t paste) const;
  int next_character(wchar_t* out);
  Result read(const char* prompt, std::string& line, bool& pasted);
  void let_wait();
  void show_again();

  const char* prompt = "";
  std::string typed, waiting;       // waiting: comes before the next key
  std::vector<std::string> pastes;  // of this chat, since history may bring a line back
  const Interruption& interruption;
  EditLine* editor;
  History* history;
  bool interrupted = false;
  std::optional<termios> shown;  // the mode before let_wait()
};

LineEditor::Terminal::Terminal(const Interruption& interruption) : interruption(interruption) {
  use_utf8();
  // So that poll() returns when the width has changed, and after Ctrl-Z and fg.
  for (const int signal : {SIGWINCH, SIGCONT}) std::signal(signal, [](int) {});
  editor = el_init("chaski", stdin, stdout_is_terminal() ? stdout : stderr, stderr);
  history = history_init();
  if (!editor || !history) fail(Exit::memory, "not enough memory for the line editor");
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kHistory);
  ::history(history, &event, H_SETUNIQUE, 1);
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
}

LineEditor::Terminal::~Terminal() {
  show_again();
  if (history) history_end(history);
  if (editor) el_end(editor);
}

// False at the end of input and at Ctrl-C. Other signals end poll(), the call that none restarts:
// after a stop (Ctrl-Z, fg) the shell has set its own mode, and the line has to be drawn again.
bool LineEditor::Terminal::key(char& byte) {
  while (!(interrupted = interruption.requested())) {
    pollfd in[] = {{STDIN_FILENO, POLLIN, 0}, {interruption.descriptor(), POLLIN, 0}};
    const int ready = ::poll(in, 2, -1);
    if (interruption.requested()) continue;
    if (ready > 0 && in[0].revents == 0) continue;  // the request comes in a moment
    if (ready > 0) return ::read(STDIN_FILENO, &byte, 1) == 1;
    if (errno != EINTR) return false;
    el_resize(editor);
    el_set(editor, EL_PREP_TERM, 0);  // it would not set what it believes to be set
    el_set(editor, EL_PREP_TERM, 1);
    byte = kRedraw;
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

// Behind an escape: whether a paste follows. If not, what was read of it waits.
bool LineEditor::Terminal::paste_begins() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  char byte;
  while (waiting != kPasteBegins && kPasteBegins.starts_with(waiting) &&
         ::poll(&in, 1, kSequenceMs) == 1 && key(byte))
    waiting += byte;
  if (waiting != kPasteBegins) return false;
  waiting.clear();
  return true;
}

std::string LineEditor::Terminal::place_of(size_t paste) const {
  const std::string& text = pastes[paste];
  return fmt::format("[paste {}: {} lines]", paste + 1,
                     std::count(text.begin(), text.end(), '\n') + 1);
}

// One line goes into the line as if it were typed, several have a place there.
void LineEditor::Terminal::take_paste() {
  std::string text;
  char byte;
  while (!text.ends_with(kPasteEnds) && text.size() < kMostText && key(byte)) text += byte;
  if (text.ends_with(kPasteEnds)) text.resize(text.size() - kPasteEnds.size());
  text = with_line_feeds(text);
  if (has_controls(text)) {
    pastes.push_back(std::move(text));
    waiting = place_of(pastes.size() - 1);
  } else {
    waiting = std::move(text);
  }
}

int LineEditor::Terminal::next_character(wchar_t* out) {
  std::mbstate_t state{};
  char byte;
  while (next_byte(byte)) {
    if (byte == kEscape && waiting.empty() && paste_begins()) {
      take_paste();
      continue;
    }
    const size_t n = std::mbrtowc(out, &byte, 1, &state);
    if (n == size_t(-2)) continue;  // a character of several bytes has begun
    if (n != size_t(-1)) return 1;
    state = {};  // not UTF-8: drop it
  }
  const LineInfo* line = el_line(editor);
  typed.assign(line->buffer, line->lastchar - line->buffer);
  return interrupted ? -1 : 0;
}

// Without ICANON nothing has to be a line: a paste may be longer than the system takes for one. The
// line editor wants Enter as it comes, so ICRNL goes too.
void LineEditor::Terminal::let_wait() {
  termios mode;
  if (shown || ::tcgetattr(STDIN_FILENO, &mode) != 0) return;
  shown = mode;
  mode.c_lflag &= ~tcflag_t(ECHO | ICANON);
  mode.c_lflag |= NOFLSH;  // Ctrl-C stops the answer, and what was typed stays
  mode.c_iflag &= ~tcflag_t(ICRNL);
  mode.c_cc[VMIN] = 1, mode.c_cc[VTIME] = 0;
  terminal_is_changed(true);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &mode);
  if (knows_pastes()) mark_pastes(true);
}

void LineEditor::Terminal::show_again() {
  if (!shown) return;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &*shown);
  shown.reset();
  if (knows_pastes()) mark_pastes(false);
  terminal_is_changed(false);
}

LineEditor::Result LineEditor::Terminal::read(const char* prompt_text, std::string& line,
                                              bool& pasted) {
  interrupted = false;
  prompt = prompt_text;
  show_again();
  terminal_is_changed(true);
  if (knows_pastes()) mark_pastes(true);
  int count = 0;
  const char* text = el_gets(editor, &count);
  if (knows_pastes()) mark_pastes(false);
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
  for (size_t i = 0; i < pastes.size(); ++i) {
    const std::string place = place_of(i);
    const size_t at = line.find(place);
    if (at == std::string::npos) continue;
    line.replace(at, place.size(), pastes[i]);
    pasted = true;
  }
  return Result::line;
}

LineEditor::LineEditor(const Interruption& interruption) {
  if (stdin_is_terminal()) terminal_ = std::make_unique<Terminal>(interruption);
}
LineEditor::~LineEditor() = default;

void LineEditor::let_wait() {
  if (terminal_) terminal_->let_wait();
}

LineEditor::Result LineEditor::read(const char* prompt, std::string& line) {
  pasted_ = false;
  if (terminal_) return terminal_->read(prompt, line, pasted_);
  line.clear();
  for (int c; (c = std::cin.get()) != '\n'; line += char(c)) {
    if (c == std::istream::traits_type::eof()) return line.empty() ? Result::end : Result::line;
    if (line.size() == kMostText)
      fail(Exit::io,
           "standard input: a line has more than {} bytes, which is the most that is read",
           kMostText);
  }
  return Result::line;
}

}  // namespace chaski
