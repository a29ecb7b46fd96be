// The ranks of tests: threads of one process, which copy messages.
#pragma once
#include <memory>
#include <vector>

#include "engine/passes/link.h"

namespace chaski::test {

// The links of `ranks` threads. `least_bytes` is 0. `silence`: the time after which a rank is lost,
// at most.
std::vector<std::shared_ptr<Link>> thread_links(int ranks, double silence = kSilence);

}  // namespace chaski::test
