#include "main/terminal/keyboard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr std::string_view kNextPaste = "\033[200~", kPasteEnds = "\033[201~";
constexpr int kSequenceMs = 50;  // most time between the bytes of one key
// Ctrl-C also drops the bytes that the terminal holds, perhaps with the mark of the paste's end.
// After a pause this long the paste is taken to be over.
constexpr int kPasteSilenceMs = 500;

// Set by signal handlers. `continued`: the shell had the terminal (Ctrl-Z and fg) since the last
// check. `changes`: an eventfd, readable after that or after a change of the width. It is needed
// because a signal may arrive in another thread than the one in poll().
std::atomic<bool> continued = false;
int changes = -1;

void on_change_signal(int signal) {
  if (signal == SIGCONT) continued = true;
  const int error = errno;
  ::eventfd_write(changes, 1);
  errno = error;
}

// A signal does not end the wait: a second Ctrl-C would end it in the middle of a paste.
bool has_input(int ms) {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  int ready;
  while ((ready = ::poll(&in, 1, ms)) < 0 && errno == EINTR) {
  }
  return ready == 1;
}

// Converts the line ends of a terminal (\r) to \n, without the last one. The line editor's mode
// exchanges \r and \n, so a paste's \r\n may be \n\r here.
std::string with_line_feeds(std::string_view text) {
  std::string out;
  const auto is = [&](size_t i, char c) { return i < text.size() && text[i] == c; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (is(i, '\r') && is(i + 1, '\n')) continue;
    out += is(i, '\r') ? '\n' : text[i];
    if (is(i, '\n') && is(i + 1, '\r')) ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

Keyboard::Keyboard(const Interruption& interruption, std::function<void()> on_change)
    : interruption_(interruption), on_change_(std::move(on_change)) {
  keyboard_ = ::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (keyboard_ < 0) keyboard_ = STDIN_FILENO;
  changes = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (const int signal : {SIGWINCH, SIGCONT}) std::signal(signal, on_change_signal);
}

Keyboard::~Keyboard() {
  release();
  if (keyboard_ != STDIN_FILENO) ::close(keyboard_);
}

Keyboard::Key Keyboard::next(char& byte, bool inside) {
  while (!interruption_.requested()) {
    if (!held_.empty()) {
      byte = held_.front();
      held_.pop_front();
      return Key::byte;
    }
    pollfd in[] = {
        {STDIN_FILENO, POLLIN, 0}, {changes, POLLIN, 0}, {interruption_.descriptor(), POLLIN, 0}};
    const int ready = ::poll(in, 3, -1);
    if (interruption_.requested()) break;
    if (ready < 0 && errno != EINTR) return Key::end;
    eventfd_t ignored;
    if (ready <= 0 || ::eventfd_read(changes, &ignored) != 0) {
      if (ready <= 0 || in[0].revents == 0) continue;  // the interrupt flag is set in a moment
      const ssize_t n = ::read(keyboard_, &byte, 1);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;  // Ctrl-C dropped the bytes
      return n == 1 ? Key::byte : Key::end;
    }
    on_change_();
    if (continued.exchange(false) && terminal_obeys()) mark_pastes(true);  // shells turn that off
    if (!inside) return Key::changed;
  }
  held_.clear();  // as the system drops what the terminal holds
  return Key::interrupted;
}

Keyboard::Key Keyboard::read(char& byte, bool inside) {
  if (waiting_.empty()) return next(byte, inside);
  if (interruption_.requested()) {
    if (!dropped_) waiting_.clear();  // else these bytes came after the paste and Ctrl-C
    return Key::interrupted;
  }
  byte = waiting_[0];
  waiting_.erase(0, 1);
  return Key::byte;
}

bool Keyboard::take(std::string_view rest_of_key) {
  char byte;
  while (waiting_.size() < rest_of_key.size() && rest_of_key.starts_with(waiting_) &&
         (!held_.empty() || has_input(kSequenceMs)) && next(byte, true) == Key::byte)
    waiting_ += byte;
  if (!waiting_.starts_with(rest_of_key)) return false;
  waiting_.erase(0, rest_of_key.size());
  return true;
}

std::optional<std::string> Keyboard::rest_of_paste() {
  std::string text;
  char byte;
  Key key = Key::byte;
  while (!text.ends_with(kPasteEnds) && text.size() < kMostText &&
         (key = read(byte, true)) == Key::byte)
    text += byte;
  if (text.ends_with(kPasteEnds))
    return with_line_feeds(text.substr(0, text.size() - kPasteEnds.size()));
  dropped_ = text.size();
  if (key != Key::end) drop_rest_of_paste(std::move(text));
  return std::nullopt;
}

// `end`: the last bytes that were read. Bytes after the mark wait for the next line. The beginning
// of another paste shows that the terminal has dropped the mark.
void Keyboard::drop_rest_of_paste(std::string end) {
  char part[4096];
  std::string more = std::exchange(waiting_, "");
  more.append(held_.begin(), held_.end()), held_.clear();
  for (;;) {
    end.erase(0, end.size() - std::min(end.size(), kPasteEnds.size() - 1));
    const size_t before = end.size();
    end += more;
    const size_t mark = end.find(kPasteEnds), next = end.find(kNextPaste);
    if (mark != next) {  // one of them is there
      const size_t over = std::min(mark, next);
      *dropped_ += over - std::min(over, before);
      return put_back(end.substr(over + (over == mark ? kPasteEnds.size() : 0)));
    }
    *dropped_ += more.size();
    ssize_t n = -1;
    while (n < 0 && has_input(kPasteSilenceMs)) {
      n = ::read(keyboard_, part, sizeof part);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return;
    }
    if (n <= 0) return;
    more.assign(part, size_t(n));
  }
}

std::optional<size_t> Keyboard::dropped() { return std::exchange(dropped_, std::nullopt); }

// Without ICANON a paste may be longer than the longest line of the system. Without ICRNL the line
// editor receives Enter unchanged.
void Keyboard::hold() {
  termios mode;
  if (shown_ || ::tcgetattr(STDIN_FILENO, &mode) != 0) return;
  shown_ = mode;
  continued = false;
  set_waiting(mode);
}

void Keyboard::keep_holding() {
  if (!shown_ || !has_the_terminal()) return;
  if (continued.exchange(false)) set_waiting(*shown_);
  // The terminal holds 4 KB of typed bytes. Ctrl-C after them would not reach it.
  char part[4096];
  while (held_.size() < kMostText && has_input(0)) {
    const ssize_t n = ::read(keyboard_, part, sizeof part);
    if (n <= 0) break;
    held_.insert(held_.end(), part, part + n);
  }
}

void Keyboard::set_waiting(termios mode) {
  mode.c_lflag &= ~tcflag_t(ECHO | ICANON);
  mode.c_lflag |= NOFLSH;  // Ctrl-C stops the answer and keeps typed text
  mode.c_iflag &= ~tcflag_t(ICRNL);
  mode.c_cc[VMIN] = 1, mode.c_cc[VTIME] = 0;
  terminal_is_changed(true);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &mode);
  if (terminal_obeys()) mark_pastes(true);
}

void Keyboard::release() {
  if (!shown_) return;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &*shown_);
  shown_.reset();
  if (terminal_obeys()) mark_pastes(false);
  terminal_is_changed(false);
}

}  // namespace chaski
