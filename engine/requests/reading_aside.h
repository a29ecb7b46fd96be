// Reads a text that belongs to no request, between the passes of an inbox.
#pragma once
#include <atomic>
#include <functional>
#include <span>

#include "engine/requests/inbox.h"
#include "engine/session/pass.h"

namespace chaski {

struct TextAside {
  std::span<const TokenId> tokens;
  size_t most;     // tokens of a portion: its rows have to fit into memory
  Result result;   // what a row holds
  bool every_row;  // a row for each token, or only for the last one of a portion
};

// Reads the text in a session of its own, and calls take(pass, at, n) in the thread of the passes
// after each portion: n tokens from tokens[at] on. Its pages stay in the prefix index. Once `gone`
// is set, a running pass is abandoned, the rest is not read, and the result is false. Throws what
// Pass::run() throws.
bool read_aside(Inbox& inbox, const TextAside& text, const std::atomic<bool>& gone,
                const std::function<void(const Pass& pass, size_t at, size_t n)>& take);

}  // namespace chaski
