// Implements mpi_link.h in a build without MPI.
#include "engine/passes/mpi_link.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

std::shared_ptr<Link> open_mpi_link() {
  fail(
      Exit::usage,
      "mpirun started {} ranks, but this chaski was built without MPI: run scripts/setup.sh --mpi, "
      "then make",
      mpi_ranks());
}
void close_mpi() {}
bool has_mpi() { return false; }

}  // namespace chaski
