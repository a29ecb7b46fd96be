// The embeddings of texts, computed between the passes of an inbox.
#pragma once
#include <atomic>
#include <span>
#include <vector>

#include "engine/requests/inbox.h"

namespace chaski {

// For each text what Session::pooled() returns, bit for bit. read_aside() (reading_aside.h) reads
// the texts. Once `gone` is set, the rest is not read and the result is empty.
std::vector<std::vector<float>> embeddings(Inbox& inbox,
                                           std::span<const std::vector<TokenId>> texts,
                                           const std::atomic<bool>& gone);

}  // namespace chaski
