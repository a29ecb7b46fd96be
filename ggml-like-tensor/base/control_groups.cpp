#include "ggml-like-tensor/base/control_groups.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace chaski {

bool read_text(const std::string& path, KernelText& text) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  text.size = 0;
  for (;;) {
    const ssize_t n = ::read(fd, text.bytes + text.size, sizeof text.bytes - text.size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.size += size_t(n);
  }
  ::close(fd);
  return text.size > 0;
}

// /proc/self/cgroup has "0::/a/b" for version 2 and "4:cpu,memory:/a/b" for version 1. In a
// container this path may not be mounted. Then the visible groups are those from the mount point
// on.
void each_control_group(const std::string& root, const std::string& controller,
                        const std::function<void(const std::string&, int)>& visit) {
  KernelText groups;
  if (!read_text(root + "/proc/self/cgroup", groups)) return;
  const std::string mount = root + "/sys/fs/cgroup";
  const auto upwards = [&](const std::string& from, std::string path, int version) {
    if (path == "/") path.clear();
    for (;;) {
      visit(from + path, version);
      if (path.empty()) return;
      const size_t last = path.rfind('/');
      path.resize(last == path.npos ? 0 : last);
    }
  };
  for (std::string_view text = groups.view(); !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t name = line.find(':') + 1, path = line.find(':', name) + 1;
    if (name == 0 || path == 0) continue;
    const std::string controllers = "," + std::string(line.substr(name, path - 1 - name)) + ",";
    const std::string group(line.substr(path));
    if (controllers.find("," + controller + ",") != std::string::npos)
      upwards(mount + "/" + controller, group, 1);
    if (controllers == ",,")
      for (const char* place : {"", "/unified"}) upwards(mount + place, group, 2);
  }
}

}  // namespace chaski
