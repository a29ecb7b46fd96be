// What the ranks of a run send each other. A rank is a process on a machine (mpi_link.h), or in
// tests a thread (tests/kit/thread_link.h). Rank 0 has the terminal or the server and decides what
// is computed; the other ranks follow (engine/session/follow.h).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// A rank that sends nothing for this long is lost, and the run ends. The other ranks wait longer,
// so that rank 0 prints the error.
constexpr double kSilence = 6, kMoreSilence = 1;  // seconds
constexpr double kWithoutEnd = 0;
// A node with fewer bytes of weights is computed by every rank, because dividing it saves less time
// than a gather takes.
uint64_t least_bytes_of(double seconds_of_gather, int ranks);

class Link {
 public:
  virtual ~Link() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual std::string host(int rank) const = 0;
  // The same on all ranks: least_bytes_of() the measured time of a gather.
  virtual uint64_t least_bytes() const = 0;

  struct Out {
    int to;
    std::span<const std::byte> bytes;
  };
  struct In {
    int from;
    std::span<std::byte> bytes;
  };
  // Sends and receives all of these at once. Messages from one rank arrive in order, and each has
  // the size that its receiver expects. Throws Error(io) that names a rank if it is gone, or if it
  // sends or takes nothing for `seconds`. After an error nothing more can be sent.
  void transfer(std::span<const Out> out, std::span<const In> in, double seconds);

  // The parts of all ranks, one after another, to all ranks or to rank 0 only. sizes: by rank, in
  // bytes.
  void gather(std::span<const std::byte> own, std::span<const size_t> sizes, std::byte* all,
              bool to_first = false);
  // Rank 0's message, which replaces that of the other ranks. They wait for ever.
  void broadcast(std::string& message);
  // Whether the text of an error says that a rank does not answer any more.
  static bool is_about_lost_rank(std::string_view text);
  // Such a text. `ranks`: one rank, or several of which one is lost.
  static std::string silence_of(std::string_view ranks, double seconds);
  // The time that rank 0, or another rank, waits for an answer.
  double silence() const { return rank() == 0 ? kSilence : kSilence + kMoreSilence; }

  uint64_t gathers() const { return gathers_; }

  // Rank 0 holds this during a pass, and while all ranks open an engine: engines share the link.
  std::recursive_mutex in_use;
  int engines = 0;  // opened so far
  // After an error in the middle of a pass the ranks are out of step: nothing more can be sent.
  // Call it where the error is caught.
  void give_up();
  bool given_up() const { return given_up_; }
  // Called once when the link is given up, where the error is caught. A process whose other ranks
  // are lost can do nothing more, so it ends here.
  std::function<void()> when_given_up;

 protected:
  // For exchange(): the rank is gone, or has sent or taken nothing for `seconds`.
  [[noreturn]] void is_gone(int rank) const;
  [[noreturn]] void is_silent(int rank, double seconds) const;

 private:
  virtual void exchange(std::span<const Out> out, std::span<const In> in, double seconds) = 0;

  uint64_t gathers_ = 0;
  std::atomic<bool> given_up_{false};
};

}  // namespace chaski
