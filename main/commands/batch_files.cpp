#include "main/commands/batch_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "engine/session/engine.h"  // for Error
#include "engine/text/ordered_json.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

bool is_empty(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

bool next_line(std::istream& in, const std::string& path, std::string& line) {
  if (std::getline(in, line)) return true;
  if (in.bad()) fail(Exit::io, "{}: cannot be read: {}", path, std::strerror(errno));
  return false;
}

// Writes all of the text. Returns the error; 0 for none.
int write_whole(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) text.remove_prefix(size_t(n));
  }
  return 0;
}

// A line of OUT; nothing if it is none.
std::optional<BatchResult> result_of(const std::string& line) {
  const OrderedJson json = maybe_json(line);
  BatchResult result;
  try {
    result.number = json.at("line").get<size_t>();
    const auto& response = json.at("response");
    result.sum = response.at("request_id").get<std::string>();
    result.failed = response.at("status_code").get<int>() != 200;
  } catch (const OrderedJson::exception&) {
    return std::nullopt;
  }
  return result;
}

// Passes each result to `take`, which returns whether it expects one there. Returns the end of the
// last whole line. Stores the rest, a line that was cut off, in `rest`.
template <class Take>
off_t read_results(const std::string& path, std::string& rest, Take take) {
  std::ifstream in(path, std::ios::binary);
  off_t end = 0;
  size_t number = 0;
  while (next_line(in, path, rest) && !in.eof()) {
    ++number;
    std::optional<BatchResult> result = result_of(rest);
    if (!result || !take(*std::move(result), rest))
      fail(Exit::usage,
           "{}: line {} is not a result of a batch, expected another name for the results", path,
           number);
    end += off_t(rest.size()) + 1;
  }
  // A file with one line and no newline may belong to another program: do not truncate it.
  constexpr std::string_view kBegins = R"({"id":"batch_req_)";
  if (number == 0 && !rest.starts_with(kBegins) && !kBegins.starts_with(rest))
    fail(Exit::usage, "{} is not a result of a batch, expected another name for the results", path);
  return end;
}

std::string waiting_path(const std::string& out) {
  const std::filesystem::path path = out;
  return (path.parent_path() / fmt::format(".{}.waiting", path.filename().string())).string();
}

}  // namespace

BatchInput::BatchInput(const std::string& path, std::string key)
    : path_(path), key_(std::move(key)), in_(path == "-" ? std::cin : file_) {
  if (path == "-") return;
  file_.open(path, std::ios::binary);
  if (!file_.is_open()) fail(Exit::io, "{}: cannot be opened: {}", path, std::strerror(errno));
  if (!file_.seekg(0))
    fail(Exit::usage,
         "{} is a pipe, which cannot be read twice, expected a file, or - for standard input",
         path);
  std::string line;
  while (next_line(file_, path, line)) count_ += !is_empty(line);
  file_.clear();
  file_.seekg(0);
}

std::optional<BatchLine> BatchInput::next() {
  const std::scoped_lock lock(mutex_);
  BatchLine line;
  do {
    if (!next_line(in_, path_, line.text)) return std::nullopt;
    ++number_;
  } while (is_empty(line.text));
  if (line.text.ends_with('\r')) line.text.pop_back();
  line.number = number_;
  const std::string whole = key_ + line.text;
  line.sum = fmt::format("{:016x}", XXH3_64bits(whole.data(), whole.size()));
  return line;
}

BatchOutput::BatchOutput(const std::string& path)
    : path_(path),
      file_(path == "-" ? -1 : open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (path == "-") return;
  if (file_ < 0 && errno == EISDIR)
    fail(Exit::usage, "{}: is a folder, expected a file name to write", path);
  if (file_ < 0) fail(Exit::io, "{}: cannot be opened: {}", path, std::strerror(errno));
  try {
    if (flock(file_, LOCK_EX | LOCK_NB) != 0)
      fail(Exit::usage, "{}: another batch writes to this file", path);
    struct stat of {};
    if (fstat(file_, &of) != 0 || !S_ISREG(of.st_mode)) return;
    end_ = read_earlier();
    waiting_path_ = waiting_path(path);
    read_waiting();
  } catch (...) {
    if (waiting_file_ >= 0) close(waiting_file_);
    close(file_);
    throw;
  }
}

// Closes OUT last: its lock protects the hidden file too.
BatchOutput::~BatchOutput() {
  struct stat of {};
  if (waiting_file_ >= 0) {
    if (fstat(waiting_file_, &of) == 0 && of.st_size == 0) unlink(waiting_path_.c_str());
    close(waiting_file_);
  }
  if (file_ >= 0) close(file_);
}

off_t BatchOutput::read_earlier() {
  std::string rest;
  size_t last = 0;
  const off_t end = read_results(path_, rest, [&](BatchResult result, const std::string&) {
    in_order_ &= result.number > last;
    last = result.number;
    return earlier_.emplace(result.number, std::move(result)).second;
  });
  if (ftruncate(file_, end) != 0)
    fail(Exit::io, "{}: cannot be written: {}", path_, std::strerror(errno));
  return end;
}

void BatchOutput::read_waiting() {
  waiting_file_ = open(waiting_path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (waiting_file_ < 0) return;
  std::string rest;
  const off_t end =
      read_results(waiting_path_, rest, [&](BatchResult result, const std::string& text) {
        result.text = text;
        if (!earlier_.contains(result.number))
          waiting_.insert_or_assign(result.number, std::move(result));
        return true;
      });
  for (const auto& [number, result] : waiting_) kept_.insert(number);
  if (ftruncate(waiting_file_, waiting_.empty() ? 0 : end) != 0)
    fail(Exit::io, "{}: cannot be written: {}", waiting_path_, std::strerror(errno));
}

void BatchOutput::use_waiting(const std::set<size_t>& numbers) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(waiting_, [&](const auto& each) { return !numbers.contains(each.first); });
  std::erase_if(kept_, [&](size_t number) { return !numbers.contains(number); });
}

std::optional<BatchResult> BatchOutput::take_waiting(const BatchLine& line) {
  const std::scoped_lock lock(mutex_);
  auto found = waiting_.extract(line.number);
  if (found.empty()) return std::nullopt;
  if (found.mapped().sum == line.sum) return std::move(found.mapped());
  forget_waiting(line.number);
  return std::nullopt;
}

// The hidden file becomes empty when every result that it has is in OUT.
void BatchOutput::forget_waiting(size_t number) {
  if (kept_.erase(number) > 0 && kept_.empty()) (void)!ftruncate(waiting_file_, 0);
}

void BatchOutput::keep_waiting(size_t number, const std::string& result) {
  const std::scoped_lock lock(mutex_);
  if (waiting_path_.empty() || cannot_keep_ || kept_.contains(number)) return;
  if (waiting_file_ < 0)
    waiting_file_ = open(waiting_path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const int error = waiting_file_ < 0 ? errno : write_whole(waiting_file_, result + "\n");
  if (error == 0) {
    kept_.insert(number);
    return;
  }
  cannot_keep_ = true;
  put_notice(
      fmt::format("{}: cannot be written: {}: if the batch is stopped, answers that wait for "
                  "an earlier line are lost",
                  waiting_path_, std::strerror(error)));
}

void BatchOutput::all_are_written() {
  const std::scoped_lock lock(mutex_);
  waiting_.clear(), kept_.clear();
  if (waiting_file_ >= 0) (void)!ftruncate(waiting_file_, 0);
}

void BatchOutput::write(size_t number, const std::string& result) {
  const std::scoped_lock lock(mutex_);
  const std::string whole = result + "\n";
  if (file_ < 0) return put(whole);
  if (const int error = write_whole(file_, whole)) {
    std::string rest;
    if (end_ && ftruncate(file_, *end_) != 0) rest = ", and its last line is not whole";
    fail(Exit::io, "{}: cannot be written: {}{}", path_, std::strerror(error), rest);
  }
  if (end_) *end_ += off_t(whole.size());
  forget_waiting(number);
}

}  // namespace chaski
