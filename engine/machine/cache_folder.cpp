#include "engine/machine/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr size_t kMostBytesOfLines = 16 << 20;

// `folder` is the value of an environment variable, or null.
std::string folder_of_user(const char* folder, const char* in_home) {
  const char* home = std::getenv("HOME");
  if (folder && folder[0] == '/') return std::string(folder) + "/chaski";
  return home && home[0] == '/' ? std::string(home) + in_home : "";
}

}  // namespace

std::string cache_folder() {
  return folder_of_user(std::getenv("XDG_CACHE_HOME"), "/.cache/chaski");
}
std::string state_folder() {
  return folder_of_user(std::getenv("XDG_STATE_HOME"), "/.local/state/chaski");
}
std::string config_folder() {
  return folder_of_user(std::getenv("XDG_CONFIG_HOME"), "/.config/chaski");
}

std::vector<std::string> kept_lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void add_line(const std::string& path, const std::string& line) {
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), none);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  ::fchmod(fd, 0600);
  // A full disk may have cut the line before.
  char last = '\n';
  if (const off_t size = ::lseek(fd, 0, SEEK_END); size > 0)
    last = ::pread(fd, &last, 1, size - 1) == 1 ? last : '\n';
  const std::string text = (last == '\n' ? "" : "\n") + line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
  ::close(fd);
}

void shorten_lines(const std::string& path, size_t most) {
  const std::vector<std::string> all = kept_lines(path);
  size_t first = all.size(), bytes = 0;
  while (first > 0 && all.size() - first < most &&
         (bytes += all[first - 1].size() + 1) <= kMostBytesOfLines)
    --first;
  if (first == 0) return;
  std::string text;
  for (size_t i = first; i < all.size(); ++i) text += all[i] + "\n";
  try {
    AtomicFile file(path, Permissions::owner_only);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  } catch (const Error&) {
  }
}

std::string kept_name(const std::string& kind, const std::string& path) {
  std::error_code none;
  const std::string whole = std::filesystem::canonical(path, none);
  if (none || cache_folder().empty()) return "";
  return fmt::format("{}/{:016x}", kind, XXH3_64bits(whole.data(), whole.size()));
}

std::string kept_text(const std::string& name) {
  if (cache_folder().empty()) return "";
  std::ifstream in(cache_folder() + "/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bool can_keep_text(const std::string& name) {
  if (cache_folder().empty()) return false;
  const std::filesystem::path folder =
      std::filesystem::path(cache_folder() + "/" + name).parent_path();
  std::error_code none;
  std::filesystem::create_directories(folder, none);
  return !none && ::access(folder.c_str(), W_OK) == 0;
}

void keep_text(const std::string& name, const std::string& text) {
  if (cache_folder().empty()) return;
  const std::string path = cache_folder() + "/" + name;
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), none);
  if (none) return;
  try {
    AtomicFile file(path);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  } catch (const Error&) {
  }
}

}  // namespace chaski
