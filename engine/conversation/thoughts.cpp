#include "engine/conversation/thoughts.h"

#include <algorithm>
#include <utility>

namespace chaski {

namespace {

constexpr std::string_view kBegins = "<think>", kEnds = "</think>";

}  // namespace

size_t mark_begun(std::string_view text, std::string_view mark) {
  size_t n = std::min(text.size(), mark.size() - 1);
  while (n > 0 && !mark.starts_with(text.substr(text.size() - n))) --n;
  return n;
}

std::vector<Thoughts::Part> Thoughts::push(std::string_view text) {
  held_ += text;
  std::vector<Part> out;
  const auto take = [&](size_t n, bool is_thought) {
    if (n > 0) out.push_back({held_.substr(0, n), is_thought});
    held_.erase(0, n);
  };
  if (where_ == Where::beginning) {
    const size_t first = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
    const std::string_view word = std::string_view(held_).substr(first);
    if (word.size() < kBegins.size() && kBegins.starts_with(word)) return out;
    where_ = word.starts_with(kBegins) ? Where::thought : Where::answer;
  }
  if (where_ == Where::thought) {
    const size_t at = held_.find(kEnds);
    const bool ends = at != std::string::npos;
    take(ends ? at + kEnds.size() : held_.size() - mark_begun(held_, kEnds), true);
    if (!ends) return out;
    where_ = Where::answer;
  }
  take(held_.size(), false);
  return out;
}

std::vector<Thoughts::Part> Thoughts::flush() {
  if (held_.empty()) return {};
  return {{std::exchange(held_, ""), where_ == Where::thought}};
}

}  // namespace chaski
