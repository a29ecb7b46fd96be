#include "engine/shelf/verify.h"

#include "engine/machine/cache_folder.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

std::string stamp_of(const std::string& path) { return kept_name("verified", path); }

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
