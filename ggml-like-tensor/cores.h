// How many threads of this process can run at the same time.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace chaski {

// Logical cores that the affinity mask and the CPU quota of control groups leave to this process,
// at least 1.
int usable_cores();

// The same, but two hyperthreads of one physical core count once: they share its multipliers and
// its way to memory, so that the second adds little to a pass and much to its waiting.
int physical_cores();

// Cores' worth of time that the quotas of this process's control groups leave, of its own and of
// those above it; infinite where there is none. `root` stands in front of /proc and /sys, for
// tests.
double quota_cores(const std::string& root = "");

// Cores among `cpus` when those with the same sibling list share one. `siblings` gives the list of
// a CPU, empty if it is not known.
int count_cores(const std::vector<int>& cpus, const std::function<std::string(int)>& siblings);

}  // namespace chaski
