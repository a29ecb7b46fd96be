// What a device leaves open, and the shim may choose: the device, the order in which threads and
// blocks run, when an asynchronous copy lands, how matrix instructions add floats.
//
// CHASKI_SHIM is a list of words, separated by commas:
//   h100, rtx3060, rtx5090   the device. Default: the limits of an H100 with 4 multiprocessors.
//   seed=N                   Warps, lanes and blocks run in random order, two blocks in turns. A
//                            copy lands at once or as late as possible, by chance.
//   early                    A copy lands at once.
//   truncate                 mma adds floats as tensor cores do: eight products at a time, from the
//                            last to the first, aligned and truncated.
#pragma once
#include <cstddef>
#include <cstdint>

namespace shim {

struct Profile {
  const char* name;
  int major, minor, multiprocessors;
  size_t shared;  // bytes of a block, at most
  size_t memory;
  bool early_starts() const { return major >= 9; }  // programmatic dependent launch
};

enum class Copies { late, at_once, random };

struct Modes {
  Profile profile;
  bool shuffled = false;
  Copies copies = Copies::late;
  bool truncated = false;
  uint64_t random_state = 0;

  uint32_t random(uint32_t below);
};

// From CHASKI_SHIM at the start; tests may change it.
Modes& modes();
Modes parse_modes(const char* words);  // ends the program if a word is unknown

// Sets the modes for a scope.
struct InModes {
  const Modes before = modes();
  explicit InModes(const char* words) { modes() = parse_modes(words); }
  ~InModes() { modes() = before; }
};

}  // namespace shim
