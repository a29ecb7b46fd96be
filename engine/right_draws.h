// Which guesses are right: the one place that takes them or drops them.
#pragma once
#include <optional>
#include <span>

#include "engine/session.h"

namespace chaski {

// Behind each of the last `wanted` tokens of `text` a token is drawn, draw(row, the text up to
// there), as long as what was drawn is what stands there. None where a draw gives nothing, with the
// error if it is the first that throws one.
template <class Draw>
Draws right_draws(std::span<const TokenId> text, int wanted, Draw draw) {
  Draws out;
  for (size_t row = 0, i = text.size() - size_t(wanted); i < text.size(); ++row, ++i) {
    std::optional<TokenId> token;
    try {
      token = draw(row, text.first(i + 1));
    } catch (const Error& error) {  // what a grammar cannot work out is nobody else's business
      if (row == 0) out.error = error;
    }
    if (!token) break;
    out.tokens.push_back(*token);
    if (i + 1 < text.size() && text[i + 1] != *token) break;
  }
  return out;
}

}  // namespace chaski
