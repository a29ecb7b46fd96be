// The program: runs the subcommand that the command line names (flags.cpp), and turns an exception
// into one line and an exit status. Exit codes are listed in ggml-like-tensor/base/error.h.
#include <fcntl.h>
#include <unistd.h>

#include "main/flags/commands.h"
#include "main/terminal/last_words.h"
#include "main/terminal/signals.h"

int main(int argc, char** argv) {
  using namespace chaski;
  // The parent process may have closed standard input or output. Open /dev/null in their place, the
  // wrong way round: no other file gets their numbers, and using them still fails.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0)
      (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  handle_signals();
  try {
    return run_command_line(argc, argv);
  } catch (...) {
    return put_exception();
  }
}
