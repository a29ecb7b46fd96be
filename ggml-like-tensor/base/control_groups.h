// The control groups (version 1 or 2) that this process is in, and how the kernel's text files are
// read: with read() into a buffer on the stack, so that asking costs no memory.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace chaski {

// The first kilobytes of a file: lines of interest stand there.
struct KernelText {
  char bytes[16 << 10];
  size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};
bool read_text(const std::string& path, KernelText& text);  // false if it cannot be read

// Calls visit(folder, version) for each group whose limits on a controller ("memory", "cpu") hold
// for this process: its own and all above. `root` stands in front of /proc and /sys, for tests.
void each_control_group(const std::string& root, const std::string& controller,
                        const std::function<void(const std::string& folder, int version)>& visit);

}  // namespace chaski
