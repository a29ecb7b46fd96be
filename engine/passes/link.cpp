#include "engine/passes/link.h"

#include <algorithm>
#include <cstring>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// A broadcast begins with a message of this size: the length, and as much as fits. Most passes of
// one token need no second message.
constexpr size_t kFirstBytes = 512, kLengthBytes = sizeof(uint64_t);

constexpr std::string_view kGone = "has ended", kSilent = "has not answered for";

}  // namespace

uint64_t least_bytes_of(double seconds_of_gather, int ranks) {
  constexpr double kReadSpeed = 1e10;  // of a core, in bytes of weights a second
  return ranks < 2 ? 0 : uint64_t(seconds_of_gather * kReadSpeed * ranks / (ranks - 1));
}

bool Link::is_about_lost_rank(std::string_view text) {
  return text.ends_with(kGone) || text.find(kSilent) != text.npos;
}
std::string Link::silence_of(std::string_view ranks, double seconds) {
  return fmt::format("{} {} {:.3g} s", ranks, kSilent, seconds);
}

void Link::is_gone(int rank) const { fail(Exit::io, "{} (rank {}) {}", host(rank), rank, kGone); }
void Link::is_silent(int rank, double seconds) const {
  fail(Exit::io, "{}", silence_of(fmt::format("{} (rank {})", host(rank), rank), seconds));
}

void Link::transfer(std::span<const Out> out, std::span<const In> in, double seconds) {
  if (given_up_) fail(Exit::io, "the other ranks have ended after an error");
  try {
    exchange(out, in, seconds);
  } catch (...) {
    give_up();
    throw;
  }
}

void Link::give_up() {
  if (!given_up_.exchange(true) && when_given_up) when_given_up();
}

void Link::gather(std::span<const std::byte> own, std::span<const size_t> sizes, std::byte* all,
                  bool to_first) {
  std::vector<Out> out;
  std::vector<In> in;
  for (size_t r = 0, at = 0; r < sizes.size(); at += sizes[r++]) {
    if (int(r) == rank()) {
      std::copy(own.begin(), own.end(), all + at);
      continue;
    }
    if (!own.empty() && (!to_first || r == 0)) out.push_back({int(r), own});
    if (sizes[r] > 0 && (!to_first || rank() == 0)) in.push_back({int(r), {all + at, sizes[r]}});
  }
  transfer(out, in, silence());
  ++gathers_;
}

void Link::broadcast(std::string& message) {
  std::vector<Out> out;
  std::vector<In> in;
  const auto transfer_all = [&](std::span<std::byte> bytes) {
    out.clear(), in.clear();
    if (rank() > 0) in.push_back({0, bytes});
    for (int r = 1; rank() == 0 && r < ranks(); ++r) out.push_back({r, bytes});
    transfer(out, in, rank() == 0 ? silence() : kWithoutEnd);
  };
  std::byte first[kFirstBytes] = {};
  const auto length = uint64_t(message.size());
  std::memcpy(first, &length, kLengthBytes);
  std::memcpy(first + kLengthBytes, message.data(),
              std::min(message.size(), kFirstBytes - kLengthBytes));
  transfer_all(first);
  uint64_t all = 0;
  std::memcpy(&all, first, kLengthBytes);
  message.resize(all);
  const size_t had = std::min(message.size(), kFirstBytes - kLengthBytes);
  std::memcpy(message.data(), first + kLengthBytes, had);
  if (had < all) transfer_all(std::as_writable_bytes(std::span(message)).subspan(had));
}

}  // namespace chaski
