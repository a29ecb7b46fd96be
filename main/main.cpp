// The program: runs the subcommand that the command line names (flags.cpp), and turns what it
// throws into one line and an exit status. Exit codes are listed in ggml-like-tensor/base/error.h.
#include "main/commands.h"
#include "main/last_words.h"
#include "main/signals.h"

int main(int argc, char** argv) {
  using namespace chaski;
  handle_signals();
  try {
    return run_command_line(argc, argv);
  } catch (...) {
    return put_exception();
  }
}
