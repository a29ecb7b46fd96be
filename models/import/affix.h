// Names are translated by prefixes and suffixes. Each function removes one and returns true, or
// leaves the text as it is and returns false.
#pragma once
#include <string_view>

namespace chaski {

inline bool drop_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

inline bool drop_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

}  // namespace chaski
