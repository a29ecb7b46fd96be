// The program: runs the subcommand that the command line names (flags.cpp), and turns what it
// throws into one line and an exit status. Exit codes are listed in ggml-like-tensor/base/error.h.
#include <fcntl.h>
#include <unistd.h>

#include "main/flags/commands.h"
#include "main/terminal/last_words.h"
#include "main/terminal/signals.h"

int main(int argc, char** argv) {
  using namespace chaski;
  // Who started us may have closed standard input or output: no file of ours takes their numbers,
  // and what reads or writes them fails as it would have.
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
