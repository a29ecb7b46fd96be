#include "main/terminal/signals.h"

#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "engine/machine/temporaries.h"
#include "main/terminal/last_words.h"

namespace chaski {

namespace {

using Scope = Interruption::Scope;

// Everything that handlers use: lock-free atomics, and a struct that is written before the handlers
// are installed.
std::atomic<Scope> scope_now = Scope::nothing;
std::atomic<bool> requested_flag = false;
std::atomic<int> last_signal = 0;
std::atomic<bool> changed_terminal = false, pastes_are_marked = false;
int request_descriptor = -1;
termios first_terminal;
bool has_terminal = false;
static_assert(std::atomic<Scope>::is_always_lock_free);

bool is_a_request(int signal) {
  if (scope_now == Scope::answer) return signal == SIGINT;
  return scope_now == Scope::program && (signal == SIGINT || signal == SIGTERM) && !requested_flag;
}

void on_signal(int signal) {
  if (!is_a_request(signal)) end_by_signal(signal);
  last_signal = signal;
  requested_flag = true;
  const int error = errno;
  ::eventfd_write(request_descriptor, 1);
  errno = error;
}

// A page of a mapped file that cannot be read. Any other SIGBUS is a bug and ends the program.
void on_bus_error(int signal, siginfo_t* info, void*) {
  if (const char* path = mapped_file_at(info->si_addr))
    end_now(Exit::io,
            {path,
             ": cannot be read any more: another program shortened the file while it was in "
             "use, or the disk fails (--load copy reads the whole model at the start)"});
  end_by_signal(signal);
}

void handle_faults() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
  // For ulimit -f: the write that exceeds the limit fails with an error, and its file is removed.
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace

void handle_signals() {
  handle_faults();
  request_descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  has_terminal = ::tcgetattr(STDIN_FILENO, &first_terminal) == 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction before;
    ::sigaction(signal, nullptr, &before);
    // A signal that is ignored at the start (nohup) stays ignored, except SIGPIPE: a closed pipe
    // must end the program.
    if (before.sa_handler != SIG_IGN || signal == SIGPIPE) ::sigaction(signal, &action, nullptr);
  }
}

bool has_the_terminal() { return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

void restore_and_remove() {
  if (pastes_are_marked) mark_pastes(false);
  if (changed_terminal && has_terminal && has_the_terminal())
    ::tcsetattr(STDIN_FILENO, TCSANOW, &first_terminal);
  remove_temporaries_now();
}

void end_by_signal(int signal) {
  restore_and_remove();
  if (signal == SIGINT || signal == SIGTERM) put_parting_line();
  ::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);  // process 1 of a container has no default actions
}

void terminal_is_changed(bool changed) { changed_terminal = changed; }

void mark_pastes(bool on) {
  const char text[] = {'\033', '[', '?', '2', '0', '0', '4', on ? 'h' : 'l'};
  pastes_are_marked = on && ::write(STDIN_FILENO, text, sizeof text) == ssize_t(sizeof text);
  if (!on) (void)!::write(STDIN_FILENO, text, sizeof text);
}

Interruption::Interruption(Scope scope) {
  reset();
  scope_now = scope;
}
Interruption::~Interruption() { scope_now = Scope::nothing; }

const std::atomic<bool>& Interruption::requested() const { return requested_flag; }
int Interruption::signal() const { return last_signal; }
int Interruption::descriptor() const { return request_descriptor; }
void Interruption::request() {
  requested_flag = true;
  ::eventfd_write(request_descriptor, 1);
}
void Interruption::reset() {
  last_signal = 0;
  requested_flag = false;
  eventfd_t ignored;
  ::eventfd_read(request_descriptor, &ignored);
}

}  // namespace chaski
