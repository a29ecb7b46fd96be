#include "main/api/changing_lines.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace chaski {

namespace {

constexpr std::string_view kBilling = "x-anthropic-billing-header:";
constexpr std::string_view kDates[] = {"today's date",    "todays date",      "today is",
                                       "current date",    "the current date", "current time",
                                       "the current time"};

// The line in lower case, without the mark of a list in front.
std::string beginning(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t-*#>"), line.size()));
  std::string text(line.substr(0, kBilling.size()));
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool is_date(const std::string& line) {
  return std::ranges::any_of(kDates, [&](std::string_view date) { return line.starts_with(date); });
}

}  // namespace

SteadySystem steady_system(const std::string& system, bool move_dates) {
  SteadySystem out;
  for (size_t at = 0; at < system.size();) {
    const size_t end = std::min(system.find('\n', at), system.size() - 1) + 1;
    const std::string line = system.substr(at, end - at), begin = beginning(line);
    at = end;
    if (begin == kBilling) {
      out.notes.emplace_back(
          "system: a billing line was left out, because it changes in every request "
          "(docs/serving.md)");
    } else if (move_dates && is_date(begin)) {
      out.dates += line.ends_with('\n') ? line : line + "\n";
      out.notes.emplace_back("system: a line with the date was moved to the first question");
    } else {
      out.text += line;
    }
  }
  if (!out.notes.empty()) {  // no empty lines are left where the message began or ended
    out.text.erase(0, std::min(out.text.find_first_not_of('\n'), out.text.size()));
    out.text.erase(out.text.find_last_not_of('\n') + 1);
  }
  return out;
}

}  // namespace chaski
