// The link of processes that mpirun started, over OpenMPI. Its library is loaded when it is needed,
// so that other runs start as fast as without it.
#pragma once
#include <memory>

#include "engine/passes/link.h"

namespace chaski {

bool has_mpi();  // whether this chaski was built with MPI
// How many ranks mpirun started; 0 if it did not start this process.
int mpi_ranks();
int mpi_rank();  // of this process; 0 without mpirun
// Call it once. Throws Error(usage) if this chaski was built without MPI, and Error(io) if the
// library is missing.
std::shared_ptr<Link> open_mpi_link();
// After the last message of all ranks.
void close_mpi();

}  // namespace chaski
