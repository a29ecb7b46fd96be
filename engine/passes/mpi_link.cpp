#include "engine/passes/mpi_link.h"

#include <dlfcn.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>

#include "engine/machine/this_program.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr const char* kLibrary = "libmpi.so.40";
constexpr int kTag = 1;
// A rank that waits tests its messages without pause for about the time of a step of a pass. Then
// it yields the core between tests, and later sleeps between them, while rank 0 waits for its user.
constexpr double kSpin = 2e-4, kYield = 0.05;
constexpr useconds_t kSleep = 500;
constexpr uint64_t kMeasured = UINT64_MAX;

struct Symbol {
  void* at;
  template <class T>
  operator T() const {  // the type of what it initializes
    return reinterpret_cast<T>(at);
  }
};

// The functions and objects of the library, by name.
class Library {
 public:
  Library() : handle_(::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL)) {
    if (!handle_) fail(Exit::io, "{} cannot be loaded: {}", kLibrary, ::dlerror());
  }
  Symbol find(const char* name) const {
    void* const found = ::dlsym(handle_, name);
    if (!found) fail(Exit::io, "{} has no {}, expected OpenMPI", kLibrary, name);
    return {found};
  }

 private:
  void* const handle_;
};

struct Mpi {
  const Library library;
  decltype(&MPI_Init_thread) init = library.find("MPI_Init_thread");
  decltype(&MPI_Finalize) finalize = library.find("MPI_Finalize");
  decltype(&MPI_Comm_rank) comm_rank = library.find("MPI_Comm_rank");
  decltype(&MPI_Comm_size) comm_size = library.find("MPI_Comm_size");
  decltype(&MPI_Comm_set_errhandler) set_errors = library.find("MPI_Comm_set_errhandler");
  decltype(&MPI_Get_processor_name) processor_name = library.find("MPI_Get_processor_name");
  decltype(&MPI_Isend) isend = library.find("MPI_Isend");
  decltype(&MPI_Irecv) irecv = library.find("MPI_Irecv");
  decltype(&MPI_Test) test = library.find("MPI_Test");
  const MPI_Comm world = library.find("ompi_mpi_comm_world");
  const MPI_Datatype bytes = library.find("ompi_mpi_byte");
  const MPI_Errhandler return_errors = library.find("ompi_mpi_errors_return");
};

const Mpi& mpi() {
  static const Mpi functions;
  return functions;
}

class MpiLink : public Link {
 public:
  // The link's callers take turns, so one thread at a time uses the library.
  MpiLink() {
    int level = 0;
    if (mpi().init(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS ||
        level < MPI_THREAD_SERIALIZED)
      fail(Exit::io, "{} does not start", kLibrary);
    mpi().set_errors(mpi().world, mpi().return_errors);
    mpi().comm_rank(mpi().world, &rank_), mpi().comm_size(mpi().world, &ranks_);
    struct Introduction {
      uint64_t program = 0;
      uint64_t least_bytes = kMeasured;  // or as the environment says
      double gather = 0;                 // seconds
      char host[MPI_MAX_PROCESSOR_NAME] = {};
    } own;
    int length = 0;
    own.program = program_checksum();
    if (const char* const text = std::getenv("CHASKI_LEAST_BYTES"))
      own.least_bytes = std::strtoull(text, nullptr, 10);
    mpi().processor_name(own.host, &length);
    for (int r = 0; r < ranks_; ++r) hosts_.push_back(fmt::format("rank {}", r));
    std::vector<Introduction> all(static_cast<size_t>(ranks_));
    gather(std::as_bytes(std::span(&own, 1)), std::vector<size_t>(all.size(), sizeof own),
           reinterpret_cast<std::byte*>(all.data()));
    for (size_t r = 0; r < all.size(); ++r) hosts_[r] = all[r].host;
    own.gather = seconds_of_gather();
    gather(std::as_bytes(std::span(&own, 1)), std::vector<size_t>(all.size(), sizeof own),
           reinterpret_cast<std::byte*>(all.data()));
    least_bytes_ = all[0].least_bytes == kMeasured ? least_bytes_of(all[0].gather, ranks_)
                                                   : all[0].least_bytes;
    // Messages have the layout of the build. The other ranks end with rank 0.
    for (size_t r = 0; rank_ == 0 && r < all.size(); ++r)
      if (all[r].program != own.program)
        fail(Exit::usage,
             "{} (rank {}) has another build of chaski, expected the program file of {}", hosts_[r],
             r, hosts_[0]);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string host(int rank) const override { return hosts_[size_t(rank)]; }
  uint64_t least_bytes() const override { return least_bytes_; }

  void exchange(std::span<const Out> out, std::span<const In> in, double seconds) override {
    open_.clear();
    for (const In& i : in)
      begin(i.from, i.bytes.size(), [&](int n, MPI_Request* request) {
        return mpi().irecv(i.bytes.data(), n, mpi().bytes, i.from, kTag, mpi().world, request);
      });
    for (const Out& o : out)
      begin(o.to, o.bytes.size(), [&](int n, MPI_Request* request) {
        return mpi().isend(o.bytes.data(), n, mpi().bytes, o.to, kTag, mpi().world, request);
      });
    const auto start = Clock::now();
    for (auto last = start; !open_.empty();) {
      const size_t before = open_.size();
      std::erase_if(open_, [&](Open& of) {
        int done = 0;
        expect(mpi().test(&of.request, &done, MPI_STATUS_IGNORE), of.rank);
        return done != 0;
      });
      const auto now = Clock::now();
      if (open_.size() < before) last = now;
      if (open_.empty()) return;
      const auto since = [&](Clock::time_point from) {
        return std::chrono::duration<double>(now - from).count();
      };
      if (seconds != kWithoutEnd && since(last) > seconds) is_silent(open_[0].rank, seconds);
      if (since(start) > kYield)
        ::usleep(kSleep);
      else if (since(start) > kSpin)
        ::sched_yield();
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    int rank;
    MPI_Request request;
  };

  // The least of several: other work on a machine makes some of them slow.
  double seconds_of_gather() {
    constexpr int kTimes = 21;
    constexpr size_t kBytes = 1 << 10;  // about the bytes of a decode step
    const std::vector<size_t> sizes(static_cast<size_t>(ranks_), kBytes);
    const std::vector<std::byte> part(kBytes);
    std::vector<std::byte> all(kBytes * sizes.size());
    auto least = std::chrono::duration<double>::max();
    for (int i = 0; i < kTimes; ++i) {
      const auto start = Clock::now();
      gather(part, sizes, all.data());
      least = std::min<std::chrono::duration<double>>(least, Clock::now() - start);
    }
    return least.count();
  }
  void expect(int status, int rank) const {
    if (status != MPI_SUCCESS) is_gone(rank);
  }
  template <class Begin>
  void begin(int rank, size_t bytes, Begin with) {
    ENSURE(bytes <= size_t(INT_MAX), "an MPI message must have less than 2 GB");
    open_.push_back({rank, {}});
    expect(with(int(bytes), &open_.back().request), rank);
  }

  int rank_ = 0, ranks_ = 1;
  uint64_t least_bytes_ = 0;
  std::vector<std::string> hosts_;
  std::vector<Open> open_;  // messages that are not done
};

}  // namespace

std::shared_ptr<Link> open_mpi_link() { return std::make_shared<MpiLink>(); }

void close_mpi() { mpi().finalize(); }
bool has_mpi() { return true; }

}  // namespace chaski
