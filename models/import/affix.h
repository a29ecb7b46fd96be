// Names are translated by prefixes and suffixes. Each function removes one and returns true, or
// leaves the text as it is and returns false.
#pragma once
#include <charconv>
#include <cstdint>
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

// Whether a name is "<layers><number>.<rest>" with a number of at least `from`; from < 0: never.
inline bool is_of_layer_from(std::string_view name, std::string_view layers, int64_t from) {
  if (from < 0 || !drop_prefix(name, layers)) return false;
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' && layer >= from;
}

}  // namespace chaski
