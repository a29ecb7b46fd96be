// Draws tokens and accepts the draft tokens that they equal: the one place that decides about them.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "engine/session/pass.h"

namespace chaski {

// Draws a token after `text` by draw(0, text). If a draft node is that token, it is appended to
// `text`, and the next token is drawn by draw(1 + index of the node, text), and so on. Drawing ends
// where draw() returns nothing or throws an Error. `out` has the error if no token was drawn
// before.
template <class Draw>
void accept_draft(std::vector<TokenId>& text, std::span<const Draft::Node> draft, Draw draw,
                  Draws& out) {
  out.clear();
  for (;;) {
    std::optional<TokenId> token;
    try {
      token = draw(size_t(out.last_accepted + 1), std::span<const TokenId>(text));
    } catch (const Error& error) {  // for example of its grammar; other sessions of the pass go on
      if (out.last_accepted < 0) out.error = error;
    }
    if (!token) return;
    out.tokens.push_back(*token);
    const auto accepted = std::ranges::find(draft, Draft::Node{*token, out.last_accepted});
    if (accepted == draft.end()) return;
    out.last_accepted = int(accepted - draft.begin());
    text.push_back(*token);
  }
}

}  // namespace chaski
