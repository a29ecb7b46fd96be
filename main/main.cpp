// The program: runs the subcommand of the command line (flags.cpp). An exception becomes one line
// and an exit status; the exit codes are listed in ggml-like-tensor/base/error.h.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "main/flags/commands.h"
#include "main/flags/ranks.h"
#include "main/terminal/last_words.h"
#include "main/terminal/signals.h"

int main(int argc, char** argv) {
  using namespace chaski;
  // The parent may have closed standard input or output. Opening /dev/null in the wrong mode keeps
  // their numbers from being reused by our files, and reads and writes still fail.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0)
      (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  handle_signals();
  int status;
  try {
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    start_ranks(words);
    status = run_command_line(std::move(words));
  } catch (...) {
    status = put_exception();
  }
  return end_ranks(status);
}
