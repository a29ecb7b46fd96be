// The embedding of a text, computed between the passes of an inbox.
#pragma once
#include <atomic>
#include <span>
#include <vector>

#include "engine/requests/inbox.h"

namespace chaski {

// What Session::pooled() returns, bit for bit. The text is read by read_aside() (reading_aside.h).
// Once `gone` is set, the rest is not read and the result is empty.
std::vector<float> embedding(Inbox& inbox, std::span<const TokenId> tokens,
                             const std::atomic<bool>& gone);

}  // namespace chaski
