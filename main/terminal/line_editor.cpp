#include "main/terminal/line_editor.h"

#include <histedit.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "engine/machine/cache_folder.h"
#include "engine/session/engine.h"
#include "engine/text/characters.h"
#include "engine/text/utf8.h"
#include "main/terminal/keyboard.h"
#include "main/terminal/output.h"
#include "main/terminal/pastes.h"

namespace chaski {

namespace {

constexpr int kHistory = 1000;           // messages
constexpr size_t kMostKept = 1 << 20;    // bytes of a message in the history file
constexpr size_t kMostShown = 60;        // completions in a list
constexpr size_t kLongestInLine = 2000;  // bytes of a paste that is shown as it is
constexpr char kEscape = 0x1b;
constexpr std::string_view kPasteBegins = "[200~", kStrayMark = "[201~";  // after an escape
constexpr std::string_view kBlock = "\"\"\"";
constexpr wchar_t kReplaced = 0xFFFD;  // for a byte that is not UTF-8
// Control characters that no key of a keyboard needs: bound to functions of libedit.
constexpr char kSubmit = 0x1c, kNextMessage = 0x1d, kPreviousMessage = 0x1e, kRedraw = 0x1f;

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

// Whether a message begins with """ and its second """ is missing.
bool is_open_block(std::string_view text) {
  return text.starts_with(kBlock) && (text.size() < 2 * kBlock.size() || !text.ends_with(kBlock));
}

// A text that is not shown as it is: a long one, one of several lines, or one that is not UTF-8.
bool needs_placeholder(std::string_view text) {
  return has_controls(text) || text.size() > kLongestInLine || valid_prefix(text) < text.size();
}

// The lines between the two """, of which the second may be missing at the end of a pipe.
std::string inside_of_block(std::string_view text) {
  const bool open = is_open_block(text);
  text.remove_prefix(kBlock.size());
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (!open) text.remove_suffix(kBlock.size());
  if (!open && text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text);
}

// The beginning of the line of `at` in a message of several lines.
const wchar_t* begin_of_line(const wchar_t* text, const wchar_t* at) {
  while (at > text && at[-1] != L'\n') --at;
  return at;
}

}  // namespace

struct LineEditor::Terminal {
  Terminal(const Interruption& interruption, const std::string& history, Complete complete);
  ~Terminal();
  // Binds keys to a method, under a name of libedit.
  template <int (Terminal::*method)()>
  void bind(const char* name, std::initializer_list<const char*> keys) {
    const auto run = +[](EditLine* e, int) { return (of(e).*method)(); };
    el_set(editor, EL_ADDFN, name, name, run);
    for (const char* key : keys) el_set(editor, EL_BIND, key, name, nullptr);
  }
  static Terminal& of(EditLine* e);
  void add_to_history(const std::string& line);
  void remember(const std::string& line);
  std::string line_of(const std::string& text);
  std::string typed() const;
  bool searches() const;
  void insert(const std::string& text);
  void paste(std::string text);
  void take_paste();
  int complete();
  int enter();
  int up();
  int down();
  int line_start();
  int line_end();
  int next_character(wchar_t* out);
  int replace(char byte, wchar_t* out);
  Message read(const char* prompt);
  bool is_drawn_wrong();

  std::string prompt, interrupted_text, suggestion;
  Keyboard keyboard;
  Pastes pastes;
  EditLine* editor;
  History* history;
  const std::string history_file;
  const Complete completions;
  bool interrupted = false, redraws = false;
  std::optional<unsigned char> replaced;  // the first byte of the line that is not UTF-8
  ptrdiff_t drawn = 0;                    // bytes of the line at the last check
};

LineEditor::Terminal& LineEditor::Terminal::of(EditLine* e) {
  Terminal* self;
  el_get(e, EL_CLIENTDATA, &self);
  return *self;
}

LineEditor::Terminal::Terminal(const Interruption& interruption, const std::string& history_file,
                               Complete complete)
    : keyboard(interruption,
               [this] {
                 el_resize(editor);
                 // libedit does not set a mode that it believes to be set
                 el_set(editor, EL_PREP_TERM, 0);
                 el_set(editor, EL_PREP_TERM, 1);
                 redraws = true;
               }),
      history_file(history_file),
      completions(std::move(complete)) {
  use_utf8();
  editor = el_init("chaski", stdin, stdout_is_terminal() ? stdout : stderr, stderr);
  history = history_init();
  if (!editor || !history) fail(Exit::memory, "not enough memory for the line editor");
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kHistory);
  ::history(history, &event, H_SETUNIQUE, 1);
  if (!history_file.empty())
    for (const std::string& line : kept_lines(history_file))
      add_to_history(pastes.from_history(line));
  el_set(editor, EL_CLIENTDATA, this);
  el_set(
      editor, EL_PROMPT, +[](EditLine* e) { return of(e).prompt.data(); });
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, ::history, history);
  el_set(
      editor, EL_GETCFN, +[](EditLine* e, wchar_t* out) { return of(e).next_character(out); });
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(editor, EL_BIND, "^_", "ed-redisplay", nullptr);
  el_set(editor, EL_BIND, "^^", "ed-prev-history", nullptr);
  el_set(editor, EL_BIND, "^]", "ed-next-history", nullptr);
  el_set(editor, EL_BIND, "\\034", "ed-newline", nullptr);
  bind<&Terminal::complete>("complete", {"^I"});
  bind<&Terminal::enter>("enter", {"^M", "^J"});
  bind<&Terminal::up>("up", {"^P", "\033[A", "\033OA"});
  bind<&Terminal::down>("down", {"^N", "\033[B", "\033OB"});
  bind<&Terminal::line_start>("line-start", {"^A", "\033[H", "\033OH", "\033[1~"});
  bind<&Terminal::line_end>("line-end", {"^E", "\033[F", "\033OF", "\033[4~"});
}

LineEditor::Terminal::~Terminal() {
  keyboard.release();
  if (!history_file.empty()) shorten_lines(history_file, kHistory);
  if (history) history_end(history);
  if (editor) el_end(editor);
}

void LineEditor::Terminal::add_to_history(const std::string& line) {
  HistEvent event;
  ::history(history, &event, H_ENTER, (valid_utf8(line) + "\n").c_str());
}

// Adds a message to the history of this chat and of later ones.
void LineEditor::Terminal::remember(const std::string& line) {
  add_to_history(line);
  const std::string kept = pastes.to_history(line);
  if (kept.size() <= kMostKept && !history_file.empty()) add_line(history_file, kept);
}

std::string LineEditor::Terminal::line_of(const std::string& text) {
  std::string one_line = text;  // the editor shows line feeds as they are
  std::ranges::replace(one_line, '\n', ' ');
  const bool changes = text.starts_with('/') || text.starts_with(kBlock) || text.ends_with('\\') ||
                       pastes.expanded(text) != text || !pastes.damaged(text).empty();
  return changes || needs_placeholder(one_line) ? pastes.add(text) : text;
}

std::string LineEditor::Terminal::typed() const {
  const LineInfo* line = el_line(editor);
  return std::string(line->buffer, line->lastchar);
}

// libedit takes UTF-8 only.
void LineEditor::Terminal::insert(const std::string& text) {
  if (const size_t at = valid_prefix(text); at < text.size() && !replaced)
    replaced = static_cast<unsigned char>(text[at]);
  el_insertstr(editor, valid_utf8(text).c_str());
  redraws = true;
}

// Inserts a paste, or a placeholder for it, at the cursor.
void LineEditor::Terminal::paste(std::string text) {
  const std::string shown = needs_placeholder(text) ? pastes.add(std::move(text)) : text;
  searches() ? keyboard.put_back(shown) : insert(shown);
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

// Ends the message, or begins its next line: after a backslash, and between two """.
int LineEditor::Terminal::enter() {
  const std::string text = typed();
  if (const std::string placeholder = pastes.damaged(text); !placeholder.empty()) {
    put_note("");
    put_error("a part of " + placeholder + " was deleted: delete the rest of it, or paste again");
    return CC_REDISPLAY;
  }
  if (is_open_block(text)) return el_insertstr(editor, "\n") == 0 ? CC_REFRESH : CC_ERROR;
  if (!text.starts_with(kBlock) && text.ends_with('\\')) {
    const LineInfoW* line = el_wline(editor);
    el_cursor(editor, int(line->lastchar - line->cursor));
    el_deletestr(editor, 1);
    return el_insertstr(editor, "\n") == 0 ? CC_REFRESH : CC_ERROR;
  }
  keyboard.put_back({&kSubmit, 1});
  return CC_NORM;
}

int LineEditor::Terminal::up() {
  const LineInfoW* line = el_wline(editor);
  const wchar_t* begin = begin_of_line(line->buffer, line->cursor);
  if (begin == line->buffer) return keyboard.put_back({&kPreviousMessage, 1}), CC_NORM;
  const wchar_t* above = begin_of_line(line->buffer, begin - 1);
  el_cursor(editor, int(std::min(above + (line->cursor - begin), begin - 1) - line->cursor));
  return CC_REFRESH;
}

int LineEditor::Terminal::down() {
  const LineInfoW* line = el_wline(editor);
  const wchar_t* end = std::find(line->cursor, line->lastchar, L'\n');
  if (end == line->lastchar) return keyboard.put_back({&kNextMessage, 1}), CC_NORM;
  const wchar_t* end_below = std::find(end + 1, line->lastchar, L'\n');
  const ptrdiff_t column = line->cursor - begin_of_line(line->buffer, line->cursor);
  el_cursor(editor, int(std::min(end + 1 + column, end_below) - line->cursor));
  return CC_REFRESH;
}

int LineEditor::Terminal::line_start() {
  const LineInfoW* line = el_wline(editor);
  el_cursor(editor, int(begin_of_line(line->buffer, line->cursor) - line->cursor));
  return CC_REFRESH;
}

int LineEditor::Terminal::line_end() {
  const LineInfoW* line = el_wline(editor);
  el_cursor(editor, int(std::find(line->cursor, line->lastchar, L'\n') - line->cursor));
  return CC_REFRESH;
}

// Whether the history is searched. The last line is then "bck:" or "fwd:" and the search text.
bool LineEditor::Terminal::searches() const {
  const std::string text = typed();
  const size_t feed = text.rfind('\n');
  if (feed == std::string::npos) return false;
  const std::string_view last = std::string_view(text).substr(feed + 1);
  return last.starts_with("bck") || last.starts_with("fwd");
}

// True after a change before the place where a line wraps or ends. libedit shifts the text after it
// on the screen, but does not move characters between rows, and it drops the rows below.
bool LineEditor::Terminal::is_drawn_wrong() {
  const LineInfo* line = el_line(editor);
  const ptrdiff_t size = line->lastchar - line->buffer;
  const bool changed = std::exchange(drawn, size) != size;
  const bool wraps = ptrdiff_t(prompt.size()) + size >= columns() ||
                     std::find(line->buffer, line->lastchar, '\n') != line->lastchar;
  return changed && line->cursor < line->lastchar && wraps && !searches();
}

void LineEditor::Terminal::take_paste() {
  if (std::optional<std::string> text = keyboard.rest_of_paste()) return paste(*std::move(text));
  if (keyboard.is_interrupted()) return;
  const size_t bytes = keyboard.dropped().value_or(0);
  put_note("");
  put_error(fmt::format("the paste has {} bytes, but chaski reads at most {}: it is dropped", bytes,
                        kMostText));
  redraws = true;
}

// U+FFFD for a byte that is not UTF-8.
int LineEditor::Terminal::replace(char byte, wchar_t* out) {
  if (!replaced) replaced = static_cast<unsigned char>(byte);
  *out = kReplaced;
  return 1;
}

int LineEditor::Terminal::next_character(wchar_t* out) {
  using Key = Keyboard::Key;
  if (!suggestion.empty()) insert(std::exchange(suggestion, ""));
  if (!keyboard.has_waiting() && is_drawn_wrong()) redraws = true;
  std::mbstate_t state{};
  bool inside = false;  // in the middle of a character, which begins with `first`
  for (char first = 0;;) {
    char byte = kRedraw;
    // Not while the rest of a key waits: the letters of an arrow key would go into the line.
    if (inside || keyboard.has_waiting() || !std::exchange(redraws, false)) {
      const Key key = keyboard.read(byte, inside);
      interrupted = key == Key::interrupted;
      if (key == Key::changed) continue;
      if (key != Key::byte) break;
      if (byte == kEscape && !inside) {
        if (keyboard.take(kPasteBegins)) {
          take_paste();
          continue;
        }
        if (keyboard.take(kStrayMark)) continue;           // the end of a paste that was dropped
        if (keyboard.take("\r") || keyboard.take("\n")) {  // Alt-Enter
          if (!searches()) insert("\n");
          continue;
        }
      }
    }
    const size_t n = std::mbrtowc(out, &byte, 1, &state);
    if (n == size_t(-2)) {
      if (!std::exchange(inside, true)) first = byte;
      continue;
    }
    if (n != size_t(-1)) return 1;
    if (!inside) return replace(byte, out);
    keyboard.put_back({&byte, 1});  // the begun character is invalid, this byte is the next key
    return replace(first, out);
  }
  interrupted_text = typed();
  return interrupted ? -1 : 0;
}

LineEditor::Message LineEditor::Terminal::read(const char* prompt_text) {
  interrupted = false, replaced.reset();
  prompt = prompt_text;
  keyboard.release();
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
    return {Result::interrupted, interrupted_text, false, keyboard.dropped()};
  }
  if (!text || count <= 0) return {Result::end, ""};
  std::string line(text, size_t(count));
  if (replaced && line.find(kReplacement) != std::string::npos)  // it may have been deleted
    put_notice(fmt::format(
        "the line is not UTF-8: byte \\x{:02x} is replaced by U+FFFD; is it Latin-1?", *replaced));
  if (line.ends_with('\n')) line.pop_back();
  if (line.find_first_not_of(" \t\n") != std::string::npos) remember(line);
  const bool block = line.starts_with(kBlock);
  return {.text = pastes.expanded(block ? inside_of_block(line) : line),
          .literal = block || pastes.begins(line),
          .typed = line};
}

LineEditor::LineEditor(const Interruption& interruption, const std::string& history,
                       Complete complete) {
  if (stdin_is_terminal())
    terminal_ = std::make_unique<Terminal>(interruption, history, std::move(complete));
}
LineEditor::~LineEditor() = default;

void LineEditor::suggest(const std::string& text) {
  if (terminal_) terminal_->suggestion = text;
}

bool LineEditor::fits_screen(const std::string& text) const {
  winsize size{};
  if (!terminal_ || ::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return true;
  size_t rows = 0;
  for (size_t at = 0, end; at <= text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    rows += 1 + (end - at) / size_t(columns());
  }
  return rows <= size.ws_row;
}

std::string LineEditor::line_of(const std::string& text) {
  return terminal_ ? terminal_->line_of(text) : text;
}

void LineEditor::recall(const std::string& line) {
  if (terminal_) terminal_->add_to_history(line);
}

void LineEditor::remember(const std::string& line) {
  if (terminal_) terminal_->remember(line);
}

void LineEditor::hold_typing() {
  if (terminal_) terminal_->keyboard.hold();
}

void LineEditor::keep_holding() {
  if (terminal_) terminal_->keyboard.keep_holding();
}

namespace {

// Reads a line of a pipe without its end, which is CR LF in a file of Windows. False at the end.
bool read_piped(std::string& line) {
  line.clear();
  const auto end_line = [&] {
    if (line.ends_with('\r')) line.pop_back();
    return true;
  };
  for (int c; (c = std::cin.get()) != '\n'; line += char(c)) {
    if (c == std::istream::traits_type::eof()) {
      if (std::ferror(stdin))
        fail(Exit::io, "standard input: cannot be read: {}", std::strerror(errno));
      return !line.empty() && end_line();
    }
    if (line.size() == kMostText)
      fail(Exit::io, "standard input: a line has more than {} bytes, the longest that chaski reads",
           kMostText);
  }
  return end_line();
}

}  // namespace

LineEditor::Message LineEditor::read(const char* prompt) {
  if (terminal_) return terminal_->read(prompt);
  std::string text, line;
  if (!read_piped(text)) return {Result::end, ""};
  // A file of Windows may begin with a byte order mark.
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (!std::exchange(has_read_, true) && text.starts_with(kMark)) text.erase(0, kMark.size());
  const bool block = text.starts_with(kBlock);
  while (block ? is_open_block(text) : text.ends_with('\\')) {
    if (!block) text.pop_back();
    if (!read_piped(line)) {
      if (block) put_notice("the input ends before the \"\"\" that ends its last message");
      break;
    }
    text += '\n' + line;
  }
  return {Result::line, block ? inside_of_block(text) : text, block};
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
