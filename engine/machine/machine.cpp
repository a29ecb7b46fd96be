#include "engine/machine/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <fstream>

#include "cuda/backend.h"
#include "engine/machine/bandwidth.h"
#include "engine/machine/cache_folder.h"
#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/cores.h"

namespace chaski {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string gigabytes(double bytes) { return fmt::format("{:.3g} GB", bytes / 1e9); }

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (const size_t colon = line.find(": "); line.starts_with("model name") && colon < line.size())
      return line.substr(colon + 2);
  return "unknown: /proc/cpuinfo has no model name";
}

Finding cpu() {
  const std::string isa = cpu_backend().name;
  const std::string_view better = better_isa();
  std::string advice;
  if (!better.empty())
    advice = fmt::format(
        "this CPU has {}, but this program was built without its kernels: build "
        "it on this machine, or with make RELEASE=1",
        better);
  else if (isa == "scalar")
    advice = "chaski has no vector kernels for this CPU: models run many times slower";
  return {"CPU", fmt::format("{}; kernels: {}", cpu_name(), isa), advice};
}

Finding cores() {
  const std::string load = first_line("/proc/loadavg");
  double busy = 0;
  std::from_chars(load.data(), load.data() + load.size(), busy);
  const int usable = usable_cores(), physical = physical_cores();
  return {"cores",
          fmt::format("{} for chaski, {} of them physical; {:.1f} busy in the last minute", usable,
                      physical, busy),
          busy > 0.5 * usable ? "other programs use them: models are slower now than on a quiet "
                                "machine"
                              : ""};
}

Finding quota() {
  const double cores = quota_cores();
  if (std::isinf(cores)) return {"CPU quota", "none", ""};
  return {"CPU quota", fmt::format("{:.3g} cores of CPU time", cores),
          "a control group limits this process: raise its cpu.max"};
}

Finding memory() {
  const double all = double(::sysconf(_SC_PHYS_PAGES)) * double(::sysconf(_SC_PAGESIZE));
  const double free = double(available_memory().value_or(0));
  return {"memory",
          fmt::format("{} of {} available: models up to about that size run", gigabytes(free),
                      gigabytes(all)),
          free < 1e9 ? "end other programs, or make models smaller with chaski quantize" : ""};
}

Finding memory_speed() {
  const int threads = physical_cores();
  const double rate = measure_read_bandwidth({.threads = threads});
  if (rate <= 0)
    return {"memory speed", "not measured", "there was not enough free memory to measure it"};
  keep_bandwidth(cpu_with(threads), rate);
  return {"memory speed",
          fmt::format("{}/s with {} threads: a model of 1 GB decodes up to {:.0f} tokens/s",
                      gigabytes(rate), threads, rate / 1e9),
          ""};
}

Finding huge_pages() {
  const std::string file = "/sys/kernel/mm/transparent_hugepage/enabled", line = first_line(file);
  const size_t begin = line.find('['), end = line.find(']');
  if (begin == std::string::npos || end < begin) return {"huge pages", "unknown to the system", ""};
  const std::string found = line.substr(begin + 1, end - begin - 1);
  return {"huge pages", found,
          found == "never"
              ? fmt::format("echo madvise > {}, as root, makes --load copy faster", file)
              : ""};
}

Finding gpu() {
  const CudaDevices devices = cuda_devices(true);
  if (devices.list.empty()) return {"GPU", devices.why_none, "", true};
  std::string found;
  for (const CudaDevice& d : devices.list)
    found += fmt::format("{}cuda:{} ({}), {} of {} free", found.empty() ? "" : "; ", d.index,
                         d.name, gigabytes(double(d.free_bytes)), gigabytes(double(d.total_bytes)));
  return {"GPU", found, ""};
}

Finding cache() {
  const std::string folder = cache_folder();
  if (folder.empty())
    return {"cache folder", "none",
            "set HOME or XDG_CACHE_HOME: without a cache folder files are checked at every start"};
  keep_text("doctor", "writable\n");
  return {"cache folder", folder,
          kept_text("doctor").empty() ? "make it writable: files are checked at every start" : ""};
}

}  // namespace

std::vector<Finding> examine_machine() {
  return {cpu(), cores(), quota(), memory(), memory_speed(), huge_pages(), gpu(), cache()};
}

}  // namespace chaski
