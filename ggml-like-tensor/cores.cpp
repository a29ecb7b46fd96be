#include "ggml-like-tensor/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <thread>

namespace chaski {

namespace {

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) cpus.push_back(i);
  if (cpus.empty())
    for (int i = 0; i < int(std::thread::hardware_concurrency()); ++i) cpus.push_back(i);
  return cpus;
}

// "max 100000" or "150000 100000" in cgroup v2, two files in v1; 0 if there is no limit.
double quota_cores() {
  double quota = 0, period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2) {
    std::string text;
    v2 >> text >> period;
    quota = std::atof(text.c_str());  // 0 for "max"
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;  // -1: no limit
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

int within_quota(int cores) {
  if (const double quota = quota_cores(); quota > 0) cores = std::min(cores, int(std::ceil(quota)));
  return std::max(cores, 1);
}

std::string siblings_of(int cpu) {
  std::string list;
  std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  in >> list;
  return list;
}

}  // namespace

int count_cores(const std::vector<int>& cpus, const std::function<std::string(int)>& siblings) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string list = siblings(cpu);
    cores.insert(list.empty() ? fmt::format("cpu{}", cpu) : list);
  }
  return int(cores.size());
}

int usable_cores() { return within_quota(int(allowed_cpus().size())); }
int physical_cores() { return within_quota(count_cores(allowed_cpus(), siblings_of)); }

}  // namespace chaski
