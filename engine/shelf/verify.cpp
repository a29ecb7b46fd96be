#include "engine/shelf/verify.h"

#include <xxhash.h>

#include <filesystem>

#include "engine/machine/cache_folder.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// The name of a file's stamp in the cache folder; empty if there is no cache folder.
std::string stamp_of(const std::string& path) {
  std::error_code none;
  const std::string whole = std::filesystem::canonical(path, none);
  if (none || cache_folder().empty()) return "";
  return fmt::format("verified/{:016x}", XXH3_64bits(whole.data(), whole.size()));
}

}  // namespace

void verify_file(const Weights& weights, Verify how, int threads) {
  if (how == Verify::never) return;
  if (how == Verify::always) return verify(weights, threads);
  const std::string stamp = stamp_of(weights.path);
  if (stamp.empty() || weights.state.empty()) return verify(weights, threads);
  if (kept_text(stamp) == weights.state) return;
  verify(weights, threads);
  keep_verified(weights.path, weights.state);
}

void keep_verified(const std::string& path, const std::string& state) {
  if (const std::string stamp = stamp_of(path); !stamp.empty()) keep_text(stamp, state);
}

}  // namespace chaski
