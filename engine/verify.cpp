#include "engine/verify.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// What of a file changes when its content does; empty if it cannot be examined.
std::string state_of(const std::string& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) != 0) return "";
  const auto time = [](const timespec& t) { return fmt::format("{}.{:09}", t.tv_sec, t.tv_nsec); };
  return fmt::format("{} bytes, modified {}, changed {}, inode {} of device {}\n", s.st_size,
                     time(s.st_mtim), time(s.st_ctim), s.st_ino, s.st_dev);
}

// Where the stamp of a file is kept; empty if nowhere.
std::string stamp_of(const std::string& path) {
  std::error_code none;
  const std::string whole = std::filesystem::canonical(path, none), folder = cache_folder();
  if (none || folder.empty()) return "";
  return fmt::format("{}/verified/{:016x}", folder, XXH3_64bits(whole.data(), whole.size()));
}

bool stamped(const std::string& stamp, const std::string& state) {
  std::ifstream in(stamp, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {}) == state;
}

// A stamp that cannot be written is only a check more the next time.
void write_stamp(const std::string& stamp, const std::string& state) {
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(stamp).parent_path(), none);
  if (none) return;
  try {
    AtomicFile file(stamp);
    file.write(std::as_bytes(std::span(state)));
    file.commit();
  } catch (const Error&) {
  }
}

}  // namespace

std::string cache_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/chaski";
  return home && home[0] == '/' ? std::string(home) + "/.cache/chaski" : "";
}

void verify_file(const Weights& weights, Verify how) {
  if (how == Verify::never) return;
  if (how == Verify::always) return verify(weights);
  // What the file is before it is read: a change meanwhile makes the stamp another's.
  const std::string stamp = stamp_of(weights.path), state = state_of(weights.path);
  if (stamp.empty() || state.empty()) return verify(weights);
  if (stamped(stamp, state)) return;
  verify(weights);
  write_stamp(stamp, state);
}

}  // namespace chaski
