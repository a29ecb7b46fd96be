#include "engine/verify.h"

#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

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

void verify_file(const Weights& weights, Verify how, int threads) {
  if (how == Verify::never) return;
  if (how == Verify::always) return verify(weights, threads);
  const std::string stamp = stamp_of(weights.path);
  if (stamp.empty() || weights.state.empty()) return verify(weights, threads);
  if (stamped(stamp, weights.state)) return;
  verify(weights, threads);
  write_stamp(stamp, weights.state);
}

}  // namespace chaski
