// Finds out how much memory is left before much of it is used. A refusal can be reported in a line;
// a kill by the kernel cannot.
#include "ggml-like-tensor/base/memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "ggml-like-tensor/base/control_groups.h"

namespace chaski {

namespace {

std::optional<uint64_t> number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// The number after `word` at the beginning of a line; `word` includes its colon or space.
std::optional<uint64_t> field(std::string_view text, std::string_view word) {
  for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1)
    if (text.substr(at).starts_with(word)) return number(text.substr(at + word.size()));
  return std::nullopt;
}

std::optional<uint64_t> number_in(const std::string& path) {
  KernelText text;
  return read_text(path, text) ? number(text.view()) : std::nullopt;  // "max" is not a number
}

using Bytes = std::optional<uint64_t>;

Bytes least(Bytes a, Bytes b) { return a && b ? std::min(*a, *b) : a ? a : b; }
uint64_t rest(uint64_t limit, uint64_t used) { return limit - std::min(limit, used); }

// What a limit of the process leaves. `used` is the field in /proc/self/status, in kB.
Bytes left_of(int resource, std::string_view used, const std::string& root) {
  rlimit limit;
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  KernelText status;
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

// What one group leaves. Its usage includes the pages of files it has read, such as a mapped model.
// The kernel drops those before it kills a process, so they count as free. (RLIMIT_AS is the
// opposite: a mapping counts as a whole from the start.)
Bytes left_in_group(const std::string& folder, const GroupFiles& files) {
  const Bytes limit = number_in(folder + files.limit), used = number_in(folder + files.used);
  if (!limit || !used) return {};
  KernelText stat;
  uint64_t cache = 0;
  if (read_text(folder + "/memory.stat", stat))
    cache = field(stat.view(), files.inactive).value_or(0) +
            field(stat.view(), files.active).value_or(0);
  return rest(*limit, rest(*used, cache));
}

Bytes left_in_all_groups(const std::string& root) {
  Bytes left;
  each_control_group(root, "memory", [&](const std::string& folder, int version) {
    left = least(left, left_in_group(folder, version == 1 ? kVersion1 : kVersion2));
  });
  return left;
}

}  // namespace

std::optional<uint64_t> available_memory(const std::string& root) {
  return least(available_pages(root),
               least(available_addresses(root), left_of(RLIMIT_DATA, "VmData:", root)));
}

std::optional<uint64_t> available_pages(const std::string& root) {
  const Bytes groups = left_in_all_groups(root);
  KernelText meminfo;
  if (!read_text(root + "/proc/meminfo", meminfo)) return groups;
  const Bytes machine = field(meminfo.view(), "MemAvailable:");
  return least(groups, machine ? Bytes(*machine * 1024) : Bytes());
}

std::optional<uint64_t> usable_pages() {
  const Bytes have = available_pages();
  return have ? Bytes(rest(*have, kReservedPages)) : have;
}

std::string size_text(uint64_t bytes) {
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", double(bytes) / 1e6)
                               : fmt::format("{:.2f} GB", double(bytes) / 1e9);
}

uint64_t resident_memory() {
  KernelText status;
  if (!read_text("/proc/self/status", status)) return 0;
  return field(status.view(), "VmRSS:").value_or(0) * 1024;
}

std::optional<uint64_t> available_addresses(const std::string& root) {
  return left_of(RLIMIT_AS, "VmSize:", root);
}

}  // namespace chaski
