// What mpirun writes to stderr: the lines of the ranks, and messages of its own. It explains each
// failure in blocks of lines; the user sees one line instead.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// What a rank writes to stderr twice a second, so that --hosts knows that it is there: MPI waits
// without end for a rank that is lost while it starts, and ranks for rank 0 between passes. The
// user does not see it.
struct RankSign {
  int rank = 0;
  std::string host;
  bool is_last = false;
  std::string text() const;
};

// Separates what the ranks write to stderr from the messages of mpirun.
class MpirunText {
 public:
  // Takes bytes that mpirun wrote. Returns the lines of the ranks.
  std::string take(std::string_view bytes);
  std::string rest() const;  // a last line without its end
  // Whether a rank wrote that another one is lost. take() returns the first such line only.
  bool lost() const { return lost_; }
  // If a rank has given no sign for kSilence: once, the text of an error that names it. Empty if a
  // rank wrote that another one is lost.
  std::string late();
  // Begins the time of late() anew, after a pause of the caller.
  void forgive();
  // Why mpirun ended. Empty if a rank wrote an error at the end, or ended in order.
  std::string reason() const;

 private:
  void take_sign(std::string_view sign);

  using Clock = std::chrono::steady_clock;
  bool in_message_ = false, lost_ = false;
  std::optional<Clock::time_point> error_;  // the last one that a rank wrote; it may have gone on
  std::string line_;
  std::vector<std::string> messages_;
  struct There {
    std::string host;
    Clock::time_point last;  // sign
  };
  std::map<int, There> ranks_;  // that gave a sign, but not the last
  std::set<int> ended_;         // that gave the last one
};

}  // namespace chaski
