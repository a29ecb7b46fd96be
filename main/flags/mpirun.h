// mpirun as a child of this process. Its messages become one line (engine/passes/mpirun_text.h). It
// is ended if it does not end by itself after a rank is lost: it waits without end for the answer
// of a machine that cannot be reached.
#pragma once
#include <string>
#include <vector>

namespace chaski {

// Runs these words, "mpirun" and its arguments, until it ends. Returns the exit status. Ends this
// process by SIGINT, SIGTERM or SIGHUP if it receives one of them. Throws Error(io).
int run_mpirun(std::vector<std::string> words);

}  // namespace chaski
