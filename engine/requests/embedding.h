// The embedding of a text, computed between the passes of an inbox.
#pragma once
#include <atomic>
#include <span>
#include <vector>

#include "engine/requests/inbox.h"

namespace chaski {

// What Session::pooled() returns, bit for bit. The text is read in portions, with passes of other
// requests between them. Once `gone` is set, the rest of the text is not read. Throws what
// Session::hidden() throws.
std::vector<float> embedding(Inbox& inbox, std::span<const TokenId> tokens,
                             const std::atomic<bool>& gone);

}  // namespace chaski
