#include "ggml-like-tensor/base/nearest.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace chaski {

namespace {

constexpr size_t kMostBytes = 100;

char small(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

size_t distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMostBytes), b = b.substr(0, kMostBytes);
  std::vector<size_t> row(b.size() + 1);  // from what was read of a to every beginning of b
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (small(a[i]) != small(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  return *std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return distance(name, a) < distance(name, b);
  });
}

std::string one_of(const std::vector<std::string>& names) {
  std::string text = names[0];
  for (size_t i = 1; i < names.size(); ++i)
    text += (i + 1 < names.size() ? ", " : " or ") + names[i];
  return text;
}

std::string expected_names(std::string_view name, const std::vector<std::string>& known) {
  if (known.size() == 1) return known[0];
  return fmt::format("{} (nearest: {})", one_of(known), nearest_name(name, known));
}

}  // namespace chaski
