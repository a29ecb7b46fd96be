// How many threads of this process can run at the same time.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace chaski {

// Logical cores that the affinity mask and the CPU quota of control groups leave to this process;
// at least 1.
int usable_cores();

// The same, but two hyperthreads of one physical core count once. They share its multipliers and
// its path to memory, so the second adds little speed to a pass and much waiting.
int physical_cores();

// CPU time that the quotas of this process's control groups (its own and those above) allow, in
// cores; infinite without a quota. Tests pass a `root` that is put before /proc and /sys.
double quota_cores(const std::string& root = "");

// The number of cores among `cpus`; CPUs with the same sibling list share a core. `siblings`
// returns the list of a CPU, empty if it is not known.
int count_cores(const std::vector<int>& cpus, const std::function<std::string(int)>& siblings);

}  // namespace chaski
