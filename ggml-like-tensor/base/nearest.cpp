#include "ggml-like-tensor/base/nearest.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace chaski {

namespace {

constexpr size_t kMostBytes = 100, kMostListed = 48;

char small(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

size_t distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMostBytes), b = b.substr(0, kMostBytes);
  // Edit distances from the first i, i - 1 and i - 2 bytes of a to every prefix of b.
  std::vector<size_t> row(b.size() + 1), above = row, above_that = row;
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(above_that, above), std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const auto same = [&](size_t x, size_t y) { return small(a[x - 1]) == small(b[y - 1]); };
      row[j] = std::min({above[j - 1] + !same(i, j), above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j))
        row[j] = std::min(row[j], above_that[j - 2] + 1);
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

namespace {

// Whether the first letters are the same, or the first two are swapped.
bool same_beginning(std::string_view a, std::string_view b) {
  const auto same = [&](size_t x, size_t y) {
    return x < a.size() && y < b.size() && small(a[x]) == small(b[y]);
  };
  return same(0, 0) || (same(0, 1) && same(1, 0));
}

}  // namespace

// Typing errors rarely hit the first letter: a name with another one is another word, as --fits is
// not --bits.
std::string likely_name(std::string_view name, const std::vector<std::string>& known) {
  const auto letters = [](std::string_view word) {
    return word.substr(std::min(word.find_first_not_of("-/"), word.size()));
  };
  const std::string_view typed = letters(name);
  std::string likely;
  size_t least = 0;
  for (const std::string& one : known) {
    const std::string_view word = letters(one);
    if (!same_beginning(typed, word)) continue;
    const size_t d = distance(typed, word);
    if (3 * d <= std::max(typed.size(), word.size()) && (likely.empty() || d < least))
      likely = one, least = d;
  }
  return likely;
}

std::string one_of(const std::vector<std::string>& names) {
  std::string text = names[0];
  for (size_t i = 1; i < names.size(); ++i)
    text += (i + 1 < names.size() ? ", " : " or ") + names[i];
  return text;
}

std::string expected_names(std::string_view name, const std::vector<std::string>& known) {
  if (known.size() == 1) return known[0];
  const std::string nearest = nearest_name(name, known),
                    all = known.size() > kMostListed
                              ? fmt::format("one of {} known ones", known.size())
                              : one_of(known);
  const size_t length = std::max(std::min(name.size(), kMostBytes), nearest.size());
  const bool near = 2 * distance(name, nearest) <= length;
  return near ? fmt::format("{} (nearest: {})", all, nearest) : all;
}

}  // namespace chaski
