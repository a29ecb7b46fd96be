// Which guesses are right: the one place that takes them or drops them.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "engine/session/session.h"

namespace chaski {

// Behind `text` a token is drawn, draw(0, text); if a guess is that token, it joins the text, and
// behind it another is drawn, draw(1 + number of the guess, text), and so on. None where a draw
// gives nothing, with the error if it is the first that throws one. What `out` had is forgotten.
template <class Draw>
void right_draws(std::vector<TokenId>& text, std::span<const Draft::Node> guesses, Draw draw,
                 Draws& out) {
  out.forget();
  for (;;) {
    std::optional<TokenId> token;
    try {
      token = draw(size_t(out.right + 1), std::span<const TokenId>(text));
    } catch (const Error& error) {  // what a grammar cannot work out is nobody else's business
      if (out.right < 0) out.error = error;
    }
    if (!token) return;
    out.tokens.push_back(*token);
    const auto right = std::find(guesses.begin(), guesses.end(), Draft::Node{*token, out.right});
    if (right == guesses.end()) return;
    out.right = int(right - guesses.begin());
    text.push_back(*token);
  }
}

}  // namespace chaski
