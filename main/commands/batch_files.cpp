#include "main/commands/batch_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/session/engine.h"  // for Error
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

// A line of OUT; nothing if it is none.
std::optional<BatchResult> result_of(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  BatchResult result;
  try {
    result.number = json.at("line").get<size_t>();
    const auto& response = json.at("response");
    result.sum = response.at("request_id").get<std::string>();
    result.failed = response.at("status_code").get<int>() != 200;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  return result;
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
  if (file_ < 0) fail(Exit::io, "{}: cannot be opened: {}", path, std::strerror(errno));
  try {
    if (flock(file_, LOCK_EX | LOCK_NB) != 0)
      fail(Exit::usage, "{}: another batch writes to this file", path);
    struct stat of {};
    if (fstat(file_, &of) == 0 && S_ISREG(of.st_mode)) end_ = read_earlier();
  } catch (...) {
    close(file_);
    throw;
  }
}

BatchOutput::~BatchOutput() {
  if (file_ >= 0) close(file_);
}

off_t BatchOutput::read_earlier() {
  std::ifstream in(path_, std::ios::binary);
  std::string line;
  size_t number = 0, last = 0;
  off_t end = 0;                                     // of the last whole line
  while (next_line(in, path_, line) && !in.eof()) {  // at the end of file: a line that was cut off
    ++number;
    const std::optional<BatchResult> result = result_of(line);
    if (!result || earlier_.count(result->number) > 0)
      fail(Exit::usage,
           "{}: line {} is not a result of a batch, expected another name for the results", path_,
           number);
    in_order_ &= result->number > last;
    last = result->number;
    earlier_.emplace(result->number, *result);
    end += off_t(line.size()) + 1;
  }
  // A file with one line and no newline may belong to another program: do not truncate it.
  if (number == 0 && !line.empty() && !line.starts_with(R"({"id":"batch_req_)") &&
      !std::string_view(R"({"id":"batch_req_)").starts_with(line))
    fail(Exit::usage, "{} is not a result of a batch, expected another name for the results",
         path_);
  if (ftruncate(file_, end) != 0)
    fail(Exit::io, "{}: cannot be written: {}", path_, std::strerror(errno));
  return end;
}

void BatchOutput::write(const std::string& line) {
  const std::scoped_lock lock(mutex_);
  const std::string whole = line + "\n";
  if (file_ < 0) return put(whole);
  for (size_t at = 0; at < whole.size();) {
    const ssize_t n = ::write(file_, whole.data() + at, whole.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      std::string rest;
      if (end_ && ftruncate(file_, *end_) != 0) rest = ", and its last line is not whole";
      fail(Exit::io, "{}: cannot be written: {}{}", path_, std::strerror(error), rest);
    }
    at += size_t(n);
  }
  if (end_) *end_ += off_t(whole.size());
}

}  // namespace chaski
