// What the tokenizers share that look up pieces in a vocabulary.
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

// Calls found(id) for each piece that `text` begins with, from the shortest on. `sorted` are the
// pieces by text, and spelling(id) is the text of one. Byte by byte, the range of pieces that begin
// as the text does gets narrower; a piece that ends there is the first of its range.
template <class Spelling, class Found>
void each_piece(std::span<const TokenId> sorted, Spelling spelling, std::string_view text,
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
    if (first != last && spelling(*first).size() == at + 1) found(*first);
  }
}

}  // namespace chaski
