// The files of `chaski batch`: lines of requests, and one line of results for each.
//
// A batch continues after kill -9 without a lost or doubled line, because OUT is append-only: each
// result is one write() of a whole line. A new start drops a last line without its end, reads the
// others, and skips their requests. Every result has the number of its line and a sum of the line,
// the model and the settings, so results of another file, model or setting are recognised. A lock
// on OUT keeps two batches from writing to it.
//
// A result that must wait for the result of an earlier line is also appended to a hidden file next
// to OUT as soon as it is finished. A new start reads it there.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <istream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace chaski {

struct BatchLine {
  size_t number = 0;  // from 1; empty lines count and have no result
  std::string text;
  std::string sum;  // 16 hex digits
};

// Thread-safe.
class BatchInput {
 public:
  // `path`: "-" is standard input. `key`: identifies model, settings and chat template; it is part
  // of each line's hash. Throws Error(io), and Error(usage) for a pipe: it is read twice.
  BatchInput(const std::string& path, std::string key);
  // The next line that is not empty. Nothing at the end. Throws Error(io).
  std::optional<BatchLine> next();
  // Requests in the file; 0 for standard input, whose end is not known.
  size_t count() const { return count_; }

 private:
  const std::string path_, key_;
  std::ifstream file_;
  std::istream& in_;
  std::mutex mutex_;
  size_t number_ = 0, count_ = 0;
};

// A result of an earlier run.
struct BatchResult {
  size_t number = 0;
  std::string sum;
  bool failed = false;    // its status is not 200
  std::string text = {};  // only of a result that waits
};

// Thread-safe.
class BatchOutput {
 public:
  // `path`: "-" is standard output. Throws Error(io), and Error(usage) if the file has a line that
  // is no result of a batch, or if another batch writes to it.
  explicit BatchOutput(const std::string& path);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;

  const std::string& path() const { return path_; }
  // By number of the line.
  const std::map<size_t, BatchResult>& earlier() const { return earlier_; }
  // Whether the earlier results are in the order of their lines.
  bool in_order() const { return in_order_; }
  // Whether a later run finds the results again: OUT is a regular file.
  bool can_continue() const { return end_.has_value(); }
  // Appends the result of line `number`, which then waits no longer. Throws Error(io), and then the
  // file ends with the last whole line.
  void write(size_t number, const std::string& result);

  // The results that an earlier run left waiting, by number of the line, until they are taken.
  const std::map<size_t, BatchResult>& waiting() const { return waiting_; }
  // Forgets those of other lines: they are of another request or setting.
  void use_waiting(const std::set<size_t>& numbers);
  // The waiting result of this line, if it is the result of the same request. Returns it once.
  std::optional<BatchResult> take_waiting(const BatchLine& line);
  // Keeps a result that waits, in case the batch is stopped. If that fails, a note says so once.
  void keep_waiting(size_t number, const std::string& result);
  // How many results a later run finds in the hidden file.
  size_t kept_waiting() const { return kept_.size(); }
  const std::string& path_of_waiting() const { return waiting_path_; }
  // All lines have a result in OUT.
  void all_are_written();

 private:
  off_t read_earlier();  // returns the end of the last whole line
  void read_waiting();
  void forget_waiting(size_t number);

  const std::string path_;
  std::string waiting_path_;  // empty if OUT is not a regular file
  int file_, waiting_file_ = -1;
  std::mutex mutex_;
  std::map<size_t, BatchResult> earlier_, waiting_;
  std::set<size_t> kept_;  // lines whose results are in the hidden file and not in OUT
  bool in_order_ = true, cannot_keep_ = false;
  std::optional<off_t> end_;  // of the last whole line; nothing if OUT is not a regular file
};

}  // namespace chaski
