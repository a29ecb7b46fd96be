#include "engine/conversation/call_scanner.h"

#include <algorithm>

namespace chaski {

namespace {

constexpr std::string_view kBlank = " \t\r\n";

void skip_space(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlank), rest.size()));
}

}  // namespace

std::vector<CallScanner::Step> CallScanner::follow(std::string_view text) {
  std::vector<Step> steps;
  while (at_ < text.size()) {
    if (state_ == State::lost) break;
    if (state_ == State::arguments) {
      take_arguments(text, steps);
    } else if (state_ == State::after_arguments) {
      if (take_value(text[at_++])) state_ = State::before_call;
    } else {
      const Found found = find_call(text.substr(at_));
      if (found == Found::more) break;
      state_ = found == Found::yes ? State::arguments : State::lost;
      if (found == Found::yes) steps.push_back({calls_.size() - 1, ""});
    }
  }
  return steps;
}

bool CallScanner::take_value(char c) {
  if (in_text_) {
    if (!escaped_ && c == '"') in_text_ = false;
    escaped_ = !escaped_ && c == '\\';
    return false;
  }
  in_text_ = c == '"';
  if (c == '{' || c == '[') ++depth_;
  return (c == '}' || c == ']') && --depth_ == 0;
}

void CallScanner::take_arguments(std::string_view text, std::vector<Step>& steps) {
  std::string more;
  while (at_ < text.size() && state_ == State::arguments) {
    const char c = text[at_++];
    if (in_text_ || kBlank.find(c) == std::string_view::npos) more += c;
    if (!take_value(c)) continue;
    // The object around the arguments is still open, unless the name came before the JSON.
    state_ = syntax_.name_first ? State::before_call : State::after_arguments;
    depth_ = syntax_.name_first ? 0 : 1;
  }
  if (more.empty()) return;
  calls_.back().arguments += more;
  steps.push_back({calls_.size() - 1, std::move(more)});
}

// Reads the marks before a call, and the call up to its arguments. Reads nothing unless all of that
// is there.
CallScanner::Found CallScanner::find_call(std::string_view rest) {
  const size_t all = rest.size();
  // The end of the call before is here too.
  const std::string_view marks[] = {syntax_.begins, syntax_.ends, "```json", "```"};
  for (bool again = true; again;) {
    skip_space(rest);
    again = false;
    for (const std::string_view mark : marks) {
      if (mark.empty() || rest.empty()) continue;
      if (rest.size() < mark.size() && mark.starts_with(rest)) return Found::more;
      if (!rest.starts_with(mark)) continue;
      rest.remove_prefix(mark.size());
      again = true;
      break;
    }
    if (again || rest.empty() || std::string_view("[],;").find(rest[0]) == std::string_view::npos)
      continue;
    rest.remove_prefix(1);
    again = true;
  }
  std::string name;
  const Found found = find_name(rest, name);
  if (found != Found::yes) return found;
  if (std::ranges::count(tools_.names(), name) == 0) return Found::no;
  at_ += all - rest.size();
  depth_ = 0;
  calls_.push_back({std::move(name), ""});
  return Found::yes;
}

// Reads up to the brace that opens the arguments.
CallScanner::Found CallScanner::find_name(std::string_view& rest, std::string& name) const {
  if (rest.empty()) return Found::more;
  if (syntax_.name_first) {  // name[ARGS]{...}
    const size_t brace = rest.find('{');
    if (brace == std::string_view::npos) return Found::more;
    const std::string_view before = rest.substr(0, std::min(rest.find('['), brace));
    const size_t last = before.find_last_not_of(kBlank);
    name = before.substr(0, last == std::string_view::npos ? 0 : last + 1);
    rest.remove_prefix(brace);
    return Found::yes;
  }
  const auto take = [&](std::string_view word) {
    skip_space(rest);
    if (rest.starts_with(word)) return rest.remove_prefix(word.size()), Found::yes;
    return word.starts_with(rest) ? Found::more : Found::no;
  };
  for (const std::string_view word : {"{", "\"name\"", ":", "\""})
    if (const Found found = take(word); found != Found::yes) return found;
  const size_t end = rest.find_first_of("\"\\");
  if (end == std::string_view::npos) return Found::more;
  if (rest[end] != '"') return Found::no;
  name = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  for (const std::string_view word : {",", "\""})
    if (const Found found = take(word); found != Found::yes) return found;
  const std::string_view key = rest;
  for (const std::string_view word : {"arguments\"", "parameters\""}) {
    const Found found = take(word);
    if (found == Found::more) return found;
    if (found == Found::yes) break;
  }
  if (rest.size() == key.size()) return Found::no;
  if (const Found found = take(":"); found != Found::yes) return found;
  skip_space(rest);
  if (rest.empty()) return Found::more;
  return rest[0] == '{' ? Found::yes : Found::no;
}

}  // namespace chaski
