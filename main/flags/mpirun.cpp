#include "main/flags/mpirun.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/passes/mpirun_text.h"
#include "engine/session/engine.h"
#include "main/terminal/output.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP};
// What mpirun may take to end the other ranks, in seconds.
constexpr double kEnding = 1.5;
// Such a time between two turns is a pause of this process.
constexpr std::chrono::seconds kPause{1};

volatile sig_atomic_t received = 0, passed_on = 0;
// What the terminal sends, mpirun receives too.
void receive(int number, siginfo_t* info, void*) {
  if (info->si_code == SI_KERNEL) passed_on = number;
  received = number;
}

void write_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text.remove_prefix(size_t(n));
  }
}

}  // namespace

int run_mpirun(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> errors{}, started{};
  if (::pipe2(errors.data(), O_CLOEXEC) != 0 || ::pipe2(started.data(), O_CLOEXEC) != 0)
    fail(Exit::io, "a pipe to mpirun cannot be made: {}", std::strerror(errno));
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail(Exit::io, "mpirun cannot be started: {}", std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(int(Exit::io));
    ::dup2(errors[1], STDERR_FILENO);
    // Rank 0 would wait for the end of what is typed.
    if (::isatty(STDIN_FILENO)) ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    ::execvp(arguments[0], arguments.data());
    const int why = errno;
    (void)!::write(started[1], &why, sizeof why);
    ::_exit(int(Exit::io));
  }
  ::close(errors[1]), ::close(started[1]);
  int why = 0;
  const bool failed = ::read(started[0], &why, sizeof why) == sizeof why;
  ::close(started[0]);
  if (failed) {
    ::waitpid(child, nullptr, 0);
    fail(Exit::io, "--hosts needs mpirun, which does not start: {} (scripts/setup.sh --mpi)",
         std::strerror(why));
  }
  struct sigaction action = {}, before;
  action.sa_sigaction = receive;
  action.sa_flags = SA_SIGINFO;
  for (const int number : kForwarded)
    if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
      ::sigaction(number, &action, nullptr);

  using Clock = std::chrono::steady_clock;
  MpirunText text;
  std::optional<Clock::time_point> end;
  std::string late;
  int status = 0;
  bool killed = false, open = true;
  const auto read_some = [&](int milliseconds) {
    pollfd at{errors[0], POLLIN, 0};
    if (::poll(&at, 1, milliseconds) <= 0) return false;
    char part[4096];
    const ssize_t n = ::read(errors[0], part, sizeof part);
    if (n > 0) write_error(text.take({part, size_t(n)}));
    open = n > 0 || (n < 0 && errno == EINTR);
    return n > 0;
  };
  for (Clock::time_point before = Clock::now();;) {
    if (open)
      read_some(20);
    else
      ::usleep(20'000);
    if (const int number = received; number != passed_on) {
      ::kill(child, number);
      passed_on = number;
    }
    // This process was stopped, or could not write: the signs of that time are not read yet.
    if (Clock::now() - std::exchange(before, Clock::now()) > kPause) text.forgive();
    if (late.empty() && !received) {
      late = text.late();
      if (!late.empty()) ::kill(child, SIGTERM);
    }
    if (!end && (text.lost() || received))
      end = Clock::now() + std::chrono::milliseconds(int(1000 * kEnding));
    if (end && Clock::now() > *end && !killed) ::kill(child, SIGKILL), killed = true;
    if (::waitpid(child, &status, WNOHANG) == child) break;
  }
  while (open && read_some(0)) {
  }
  write_error(text.rest());
  if (received) end_by_signal(received);
  const std::string reason = late.empty() ? text.reason() : late;
  if (!reason.empty() && (status != 0 || !late.empty())) {
    put_error(reason);
    return int(Exit::io);
  }
  if (WIFSIGNALED(status) && !killed)
    put_error(fmt::format("mpirun was ended by signal {}", WTERMSIG(status)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : int(Exit::io);
}

}  // namespace chaski
