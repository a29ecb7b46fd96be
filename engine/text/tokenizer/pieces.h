// How tokenizers look up pieces of a vocabulary.
#pragma once
#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

// "<0x0A>" is 10; -1 for anything else.
inline int byte_of(std::string_view piece) {
  int value = -1;
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return error == std::errc() && end == piece.data() + 5 ? value : -1;
}

// Calls found(same) for each text that `text` begins with, from the shortest on. `same` are the ids
// with this text, at least one. `sorted` are all ids by text, and spelling(id) is the text of one.
// Byte by byte, the range of ids whose texts match gets narrower; those that end there come first.
template <class Spelling, class Found>
void each_beginning(std::span<const TokenId> sorted, Spelling spelling, std::string_view text,
                    Found found) {
  auto first = sorted.begin(), last = sorted.end();
  for (size_t at = 0; at < text.size() && first != last; ++at) {
    const auto byte = [&](TokenId id) {
      const std::string_view all = spelling(id);
      return at < all.size() ? static_cast<unsigned char>(all[at]) : -1;
    };
    const int next = static_cast<unsigned char>(text[at]);
    first = std::partition_point(first, last, [&](TokenId id) { return byte(id) < next; });
    last = std::partition_point(first, last, [&](TokenId id) { return byte(id) == next; });
    auto end = first;
    while (end != last && spelling(*end).size() == at + 1) ++end;
    if (end != first) found(std::span(first, end));
  }
}

}  // namespace chaski
