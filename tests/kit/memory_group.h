// A control group with a limit of memory, in which the kernel kills a program that takes more.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "tests/kit/program.h"

namespace chaski::test {

class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t bytes) {
    for (const auto& [root, limit] : {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                                      std::pair("/sys/fs/cgroup", "memory.max")}) {
      const std::string made = root + ("/chaski-test-" + std::to_string(::getpid()));
      std::error_code error;
      if (!std::filesystem::create_directory(made, error)) continue;
      folder_ = made;
      if (std::ofstream(made + "/" + limit) << bytes << std::flush) return;
      leave();
    }
    std::fprintf(stderr, "SKIPPED: no right to make a control group of memory\n");
  }
  MemoryGroup(const MemoryGroup&) = delete;
  ~MemoryGroup() { leave(); }

  bool made() const { return !folder_.empty(); }

  // Runs the program in the group.
  Outcome run(const Arguments& arguments, const std::string& input = "") const {
    Arguments all = {"-c", "echo $$ > \"$0\" && exec \"$@\"", folder_ + "/cgroup.procs",
                     chaski_binary()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Program(all, input, "", "/bin/sh").wait();
  }

 private:
  void leave() {
    std::error_code error;
    if (made()) std::filesystem::remove(folder_, error);
    folder_.clear();
  }

  std::string folder_;
};

}  // namespace chaski::test
