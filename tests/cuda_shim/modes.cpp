#include "tests/cuda_shim/modes.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace shim {

namespace {

constexpr size_t kGiB = size_t(1) << 30;
constexpr Profile kProfiles[] = {
    {"plain", 9, 0, 4, 232448, 16 * kGiB},
    {"h100", 9, 0, 132, 232448, 80 * kGiB},
    {"rtx3060", 8, 6, 28, 101376, 12 * kGiB},
    {"rtx5090", 12, 0, 170, 101376, 32 * kGiB},
};

bool set(Modes& m, const std::string& word) {
  for (const Profile& p : kProfiles)
    if (word == p.name) return m.profile = p, true;
  if (word == "early") return m.copies = Copies::at_once, true;
  if (word == "truncate") return m.truncated = true;
  if (word.rfind("seed=", 0) != 0) return false;
  m.random_state = std::strtoull(word.c_str() + 5, nullptr, 10) * 2 + 1;
  m.copies = Copies::random;
  return m.shuffled = true;
}

}  // namespace

uint32_t Modes::random(uint32_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return uint32_t((random_state >> 33) % below);
}

Modes parse_modes(const char* words) {
  Modes m{kProfiles[0]};
  std::string word;
  for (const char* at = words;; ++at) {
    if (*at && *at != ',') {
      word += *at;
      continue;
    }
    if (!word.empty() && !set(m, word)) {
      std::fprintf(stderr, "CHASKI_SHIM: unknown word %s\n", word.c_str());
      std::exit(2);
    }
    word.clear();
    if (!*at) return m;
  }
}

Modes& modes() {
  static Modes all = [] {
    const char* words = std::getenv("CHASKI_SHIM");
    return parse_modes(words ? words : "");
  }();
  return all;
}

}  // namespace shim
