#include "main/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cwchar>
#include <iostream>

#include "engine/engine.h"
#include "main/output.h"
#include "main/signals.h"

namespace chaski {

namespace {

constexpr int kHistory = 1000;  // lines
constexpr char kRedraw = 0x1f;  // a key that libedit is told to draw the line again for

// UTF-8 typed by the user needs a locale that has it; Debian's C.UTF-8 is always there.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::Terminal {
  Terminal(std::string prompt_text, const Interruption& interruption);
  ~Terminal();
  bool next_byte(char& byte);
  int next_character(wchar_t* out);
  Result read(std::string& line);

  std::string prompt, typed;
  const Interruption& interruption;
  EditLine* editor;
  History* history;
  bool interrupted = false;
};

LineEditor::Terminal::Terminal(std::string prompt_text, const Interruption& interruption)
    : prompt(std::move(prompt_text)), interruption(interruption) {
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
        return self->prompt.data();
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
  if (history) history_end(history);
  if (editor) el_end(editor);
}

// False at the end of input and at Ctrl-C. Other signals end poll(), the call that none restarts:
// after a stop (Ctrl-Z, fg) the shell has set its own mode, and the line has to be drawn again.
bool LineEditor::Terminal::next_byte(char& byte) {
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

int LineEditor::Terminal::next_character(wchar_t* out) {
  std::mbstate_t state{};
  char byte;
  while (next_byte(byte)) {
    const size_t n = std::mbrtowc(out, &byte, 1, &state);
    if (n == size_t(-2)) continue;  // a character of several bytes has begun
    if (n != size_t(-1)) return 1;
    state = {};  // not UTF-8: drop it
  }
  const LineInfo* line = el_line(editor);
  typed.assign(line->buffer, line->lastchar - line->buffer);
  return interrupted ? -1 : 0;
}

LineEditor::Result LineEditor::Terminal::read(std::string& line) {
  interrupted = false;
  terminal_is_changed(true);
  int count = 0;
  const char* text = el_gets(editor, &count);
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
  return Result::line;
}

LineEditor::LineEditor(std::string prompt, const Interruption& interruption) {
  if (stdin_is_terminal()) terminal_ = std::make_unique<Terminal>(std::move(prompt), interruption);
}
LineEditor::~LineEditor() = default;

LineEditor::Result LineEditor::read(std::string& line) {
  if (terminal_) return terminal_->read(line);
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
