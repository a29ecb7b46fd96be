// The control groups (version 1 or 2) of this process, and a reader for the kernel's text files. It
// uses read() into a buffer on the stack, so it allocates no memory.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace chaski {

// The first kilobytes of a file; the lines that are needed are there.
struct KernelText {
  char bytes[16 << 10];
  size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};
bool read_text(const std::string& path, KernelText& text);  // false if it cannot be read

// Calls visit(folder, version) for each group that limits a controller ("memory", "cpu") of this
// process: its own group and all above. Tests pass a `root` that is put before /proc and /sys.
void each_control_group(const std::string& root, const std::string& controller,
                        const std::function<void(const std::string& folder, int version)>& visit);

}  // namespace chaski
