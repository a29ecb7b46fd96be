// Reads texts that belong to no request, between the passes of an inbox.
#pragma once
#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "engine/requests/inbox.h"
#include "engine/session/pass.h"

namespace chaski {

struct TextsAside {
  std::vector<std::span<const TokenId>> texts;  // none is empty
  size_t most;     // tokens of a portion: its rows have to fit into memory
  Result result;   // what a row holds
  bool every_row;  // a row for each token, or only for the last one of a part
};

// Tokens of a text that a pass has read: `size` of them, from tokens[from] on.
struct PartAside {
  size_t text, from, size;
  std::span<const float> rows;  // one after the other
};

// Reads each text in a session of its own, several in a pass, and calls take(part) in the thread of
// the passes. The parts of a text come in order. Its pages stay in the prefix index. Once `gone` is
// set, a running pass is abandoned, the rest is not read, and the result is false. Throws what
// Pass::run() throws.
bool read_aside(Inbox& inbox, const TextsAside& texts, const std::atomic<bool>& gone,
                const std::function<void(const PartAside& part)>& take);

}  // namespace chaski
