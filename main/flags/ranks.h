// The ranks of this run: the processes that mpirun started, or --hosts by mpirun. Rank 0 reads the
// command line; the others only follow its passes (engine/session/follow.h).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/passes/link.h"

namespace chaski {

// Call it first, with the words of the command line. Words that were given with --hosts replace
// them. A rank other than 0 does not return: it ends with rank 0. Throws what open_mpi_link()
// throws.
void start_ranks(std::vector<std::string>& words);
// Call it last, with the exit status of rank 0. Returns the status.
int end_ranks(int status);
// Null without mpirun.
std::shared_ptr<Link> ranks_link();

// Runs mpirun, which starts the same command on all of these hosts, a list separated by commas, and
// ends with its status. Returns if mpirun has started this process. Standard input is a pipe then,
// so a command that wants a terminal is refused. Throws Error(usage | io).
void start_on_hosts(const std::string& hosts, bool wants_terminal);

}  // namespace chaski
