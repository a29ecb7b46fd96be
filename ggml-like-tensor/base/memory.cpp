// Memory is asked for here before much of it is taken: a refusal can be said in a line, a kill by
// the kernel cannot. Text files of the kernel are read with read() into a buffer on the stack, so
// that asking costs no memory.
#include "ggml-like-tensor/base/memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

namespace chaski {

namespace {

struct Text {
  char bytes[16 << 10];
  size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};

// Whole lines of these files stand within the first kilobytes. False if it cannot be read.
bool read_text(const std::string& path, Text& text) {
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

std::optional<uint64_t> number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// The number behind `word` at the beginning of a line; `word` has its colon or space.
std::optional<uint64_t> field(std::string_view text, std::string_view word) {
  for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1)
    if (text.substr(at).starts_with(word)) return number(text.substr(at + word.size()));
  return std::nullopt;
}

std::optional<uint64_t> number_in(const std::string& path) {
  Text text;
  return read_text(path, text) ? number(text.view()) : std::nullopt;  // "max" is no number
}

using Bytes = std::optional<uint64_t>;

Bytes least(Bytes a, Bytes b) { return a && b ? std::min(*a, *b) : a ? a : b; }
uint64_t rest(uint64_t limit, uint64_t used) { return limit - std::min(limit, used); }

// `used` in kB, by its field in /proc/self/status, under a limit of the process.
Bytes left_of(int resource, std::string_view used, const std::string& root) {
  rlimit limit;
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  Text status;
  if (!read_text(root + "/proc/self/status", status)) return limit.rlim_cur;
  return rest(limit.rlim_cur, field(status.view(), used).value_or(0) * 1024);
}

struct GroupFiles {
  const char *limit, *used, *inactive, *active;
};
constexpr GroupFiles kVersion2 = {"/memory.max", "/memory.current", "inactive_file ",
                                  "active_file "};
constexpr GroupFiles kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file ", "total_active_file "};

// What one group leaves. Its usage counts pages of files it has read, a mapped model among them;
// the kernel drops those before it kills, so they are as good as free. (RLIMIT_AS sees it the other
// way round: there a mapping counts whole from the start, read or not.)
Bytes left_in_group(const std::string& folder, const GroupFiles& files) {
  const Bytes limit = number_in(folder + files.limit), used = number_in(folder + files.used);
  if (!limit || !used) return {};
  Text stat;
  uint64_t cache = 0;
  if (read_text(folder + "/memory.stat", stat))
    cache = field(stat.view(), files.inactive).value_or(0) +
            field(stat.view(), files.active).value_or(0);
  return rest(*limit, rest(*used, cache));
}

// A limit anywhere above holds too. In a container the path may lead to where nothing is mounted:
// then the groups that can be seen are the ones from the mount point on.
Bytes left_in_groups(const std::string& mount, std::string path, const GroupFiles& files) {
  Bytes left;
  for (;;) {
    left = least(left, left_in_group(mount + path, files));
    if (path.empty()) return left;
    path.resize(std::min(path.rfind('/'), path.size()));
  }
}

// /proc/self/cgroup: "0::/a/b" for version 2, "4:memory:/a/b" for version 1.
Bytes left_in_all_groups(const std::string& root) {
  Text groups;
  if (!read_text(root + "/proc/self/cgroup", groups)) return {};
  Bytes left;
  const std::string mount = root + "/sys/fs/cgroup";
  for (std::string_view text = groups.view(); !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t name = line.find(':') + 1, path = line.find(':', name) + 1;
    if (name == 0 || path == 0) continue;
    const std::string controllers = "," + std::string(line.substr(name, path - 1 - name)) + ",";
    std::string group(line.substr(path));
    if (group == "/") group.clear();
    if (controllers.find(",memory,") != std::string::npos)
      left = least(left, left_in_groups(mount + "/memory", group, kVersion1));
    if (controllers == ",,")
      for (const char* place : {"", "/unified"})
        left = least(left, left_in_groups(mount + place, group, kVersion2));
  }
  return left;
}

}  // namespace

std::optional<uint64_t> available_memory(const std::string& root) {
  return least(available_pages(root),
               least(available_addresses(root), left_of(RLIMIT_DATA, "VmData:", root)));
}

std::optional<uint64_t> available_pages(const std::string& root) {
  const Bytes groups = left_in_all_groups(root);
  Text meminfo;
  if (!read_text(root + "/proc/meminfo", meminfo)) return groups;
  const Bytes machine = field(meminfo.view(), "MemAvailable:");
  return least(groups, machine ? Bytes(*machine * 1024) : Bytes());
}

std::optional<uint64_t> available_addresses(const std::string& root) {
  return left_of(RLIMIT_AS, "VmSize:", root);
}

}  // namespace chaski
