// The program: runs the subcommand that the command line names (flags.cpp), and turns what it
// throws into one line and an exit status. Exit codes are listed in ggml-like-tensor/base/error.h.
#include <algorithm>
#include <new>
#include <string>

#include "engine/engine.h"
#include "main/commands.h"
#include "main/output.h"
#include "main/signals.h"

namespace chaski {

namespace {

int report(Exit code, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  put_note("chaski: " + line);
  return int(code);
}

}  // namespace

}  // namespace chaski

int main(int argc, char** argv) {
  using namespace chaski;
  handle_signals();
  try {
    return run_command_line(argc, argv);
  } catch (const Error& error) {
    return report(error.code, error.what());
  } catch (const std::bad_alloc&) {
    return report(Exit::memory, "not enough memory");
  } catch (const std::exception& error) {
    return report(Exit::io, error.what());
  }
}
