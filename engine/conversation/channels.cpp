#include "engine/conversation/channels.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "engine/conversation/thoughts.h"

namespace chaski {

namespace {

constexpr std::string_view kOpens = "<think>\n", kCloses = "\n</think>\n\n", kEnd = "<|end|>",
                           kFunction = " to=functions.";
constexpr std::string_view kCallEnds = "}\n</tool_call>";
constexpr size_t kLongestHeader = 200;  // bytes; a longer one is text without marks

// The function that a header addresses; empty: none.
std::string_view function_of(std::string_view header) {
  const size_t at = header.find(kFunction);
  if (at == std::string_view::npos) return "";
  header.remove_prefix(at + kFunction.size());
  const auto is_of_name = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  };
  return header.substr(0, size_t(std::ranges::find_if_not(header, is_of_name) - header.begin()));
}

}  // namespace

Channels::Content Channels::parts_of(std::string_view content) {
  if (!content.starts_with(kOpens)) return {false, true, "", content};
  content.remove_prefix(kOpens.size());
  constexpr std::string_view kClose = kCloses.substr(0, kCloses.size() - 2);
  const size_t end = content.find(kClose);
  if (end == std::string_view::npos) return {true, false, content, ""};
  std::string_view text = content.substr(end + kClose.size());
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return {true, true, content.substr(0, end), text};
}

std::string Channels::push(std::string_view piece) {
  held_ += piece;
  std::string out;
  while (step(out)) {
  }
  return out;
}

// Returns false if the next piece is needed.
bool Channels::step(std::string& out) {
  if (held_.empty()) return false;
  if (where_ == Where::header) return read_header(out);
  const size_t end = held_.find(kEnd);
  const size_t certain = end == std::string::npos ? held_.size() - mark_begun(held_, kEnd) : end;
  out.append(held_, 0, certain);
  held_.erase(0, end == std::string::npos ? certain : end + kEnd.size());
  if (end == std::string::npos) return false;
  if (where_ == Where::call) out += kCallEnds;
  where_ = Where::header;
  return true;
}

bool Channels::read_header(std::string& out) {
  const size_t message = held_.find(kMessage);
  const std::string_view header = std::string_view(held_).substr(0, message);
  if (message == std::string::npos) {
    const auto may_begin = [&](std::string_view mark) {
      const size_t n = std::min(header.size(), mark.size());
      return header.substr(0, n) == mark.substr(0, n);
    };
    const bool marked = may_begin("<|") || may_begin(" to=");
    if (marked && header.size() <= kLongestHeader) return false;
    begin_text(out);
    return true;
  }
  const size_t channel = header.find(kChannel);
  const std::string_view name =
      channel == std::string_view::npos ? "" : header.substr(channel + kChannel.size());
  const bool thought = name.starts_with("analysis") && !answered_;
  const std::string function(calls_ ? function_of(header) : "");
  held_.erase(0, message + kMessage.size());
  if (!function.empty()) {
    begin_text(out);
    out += "<tool_call>\n{\"name\": \"" + function + "\", \"arguments\": ";
    where_ = Where::call;
    return true;
  }
  if (!thought) {
    begin_text(out);
    return true;
  }
  out += thinking_ ? "\n\n" : kOpens;
  thinking_ = true, where_ = Where::thought;
  return true;
}

void Channels::begin_text(std::string& out) {
  if (std::exchange(thinking_, false)) out += kCloses;
  if (std::exchange(answered_, true)) out += "\n\n";
  where_ = Where::text;
}

std::string Channels::flush() {
  std::string out;
  // A header that the end cut is no text.
  if (where_ == Where::header) held_.clear();
  out += std::exchange(held_, "");
  if (where_ == Where::call) out += kCallEnds;
  return out;
}

}  // namespace chaski
