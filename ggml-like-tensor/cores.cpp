#include "ggml-like-tensor/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <thread>
#include <utility>

#include "ggml-like-tensor/base/control_groups.h"

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

// The numbers before and after a space; 0 for "max" and for a missing number.
std::pair<double, double> numbers_in(const std::string& path) {
  KernelText text;
  if (!read_text(path, text)) return {};
  const std::string all(text.view());
  const size_t space = all.find(' ');
  return {std::atof(all.c_str()),
          space == std::string::npos ? 0 : std::atof(all.c_str() + space + 1)};
}

int within_quota(int cores) {
  return std::max(1, int(std::min<double>(cores, std::ceil(quota_cores()))));
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

// Version 2 has "max 100000" or "150000 100000". Version 1 has two files, where -1 means no limit.
double quota_cores(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  each_control_group(root, "cpu", [&](const std::string& folder, int version) {
    const auto [quota, period] = version == 2
                                     ? numbers_in(folder + "/cpu.max")
                                     : std::pair(numbers_in(folder + "/cpu.cfs_quota_us").first,
                                                 numbers_in(folder + "/cpu.cfs_period_us").first);
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  });
  return least;
}

int usable_cores() { return within_quota(int(allowed_cpus().size())); }
int physical_cores() { return within_quota(count_cores(allowed_cpus(), siblings_of)); }

}  // namespace chaski
