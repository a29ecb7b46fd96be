// Splits server-sent events (text/event-stream) into the data of each event.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace chaski {

class EventStream {
 public:
  using Take = std::function<void(const std::string& data)>;
  static constexpr size_t kMostBytes = 16 << 20;  // of one event

  // Takes the next bytes of an answer, split at any place, and passes on the data of each event
  // that is complete. Throws Error(io) if an event exceeds kMostBytes.
  void add(std::string_view bytes, const Take& take);
  // The end of the answer. Passes on an event that no empty line ended.
  void end(const Take& take);

 private:
  void take_line(const Take& take);

  std::string line_, data_;
  bool has_data_ = false, after_return_ = false;
};

}  // namespace chaski
