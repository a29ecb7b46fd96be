#include "engine/loadtest/event_stream.h"

#include <utility>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

void EventStream::add(std::string_view bytes, const Take& take) {
  while (!bytes.empty()) {
    // A line ends with \n, \r or \r\n, and the two bytes may arrive apart.
    if (std::exchange(after_return_, false) && bytes[0] == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    if (line_.size() + data_.size() > kMostBytes)
      fail(Exit::io, "an event of the stream has more than {} bytes", kMostBytes);
    if (end == std::string_view::npos) return;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    take_line(take);
  }
}

void EventStream::end(const Take& take) {
  if (!line_.empty()) take_line(take);
  take_line(take);
}

// An empty line ends an event. Fields other than "data" do not matter here.
void EventStream::take_line(const Take& take) {
  const std::string line = std::exchange(line_, "");
  if (line.empty()) {
    if (std::exchange(has_data_, false)) take(std::exchange(data_, ""));
    return;
  }
  constexpr std::string_view kField = "data";
  if (!line.starts_with(kField) || (line.size() > kField.size() && line[kField.size()] != ':'))
    return;
  std::string_view value = std::string_view(line).substr(std::min(kField.size() + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace chaski
