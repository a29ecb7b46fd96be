// The ranks of this run: the processes that mpirun started, or --hosts by mpirun. Rank 0 reads the
// command line; the others only follow its passes (engine/session/follow.h).
#pragma once
#include <memory>
#include <string>

#include "engine/passes/link.h"

namespace chaski {

// Call it first. With --hosts the process is replaced by mpirun (start_on_hosts()). On a rank other
// than 0 it returns the exit status when rank 0 has ended; on rank 0, and without mpirun, it
// returns -1. Throws what open_mpi_link() and start_on_hosts() throw.
int enter_world(int argc, char** argv);
// Call it last, with the exit status of rank 0. Returns the status, or ends the process if other
// ranks were lost.
int leave_world(int status);
// Null without mpirun.
std::shared_ptr<Link> world_link();

// Replaces this process by mpirun, which starts the same command without --hosts on all of these
// hosts, a list separated by commas. Returns if mpirun has started this process. Throws Error(io).
void start_on_hosts(const std::string& hosts);

}  // namespace chaski
