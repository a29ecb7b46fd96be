// What a part of the sampler declares: its parameters, and, if it is a step, when and how it works.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "engine/sampling/steps/candidates.h"

namespace chaski {

// What a step changes.
enum class StepKind : uint8_t {
  logits,       // logits, by the tokens of the text; these steps come before the others
  narrowing,    // which candidates are left; Mirostat replaces these steps
  temperature,  // the logits of the candidates, by one factor
};

// The values that a parameter may have.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool without_least = false;

  bool is_limited() const { return least > -std::numeric_limits<double>::infinity(); }
  bool holds(double x) const {
    return !is_limited() || ((without_least ? x > least : x >= least) && x <= most);
  }
  std::string text() const;  // "0 to 1", "more than 0, at most 1"
};
constexpr Range at_least(double least) { return {.least = least}; }
constexpr Range from_to(double least, double most) { return {.least = least, .most = most}; }
constexpr Range above(double least, double most = std::numeric_limits<double>::infinity()) {
  return {least, most, true};
}

// A member of a part and its flag. The default is the member's initializer, and the help names it.
template <class Part, class T>
struct Parameter {
  T Part::*value;
  const char* flag;
  const char* letter;  // the name of the value in the help
  Range range;         // of numbers
  const char* help;
  bool refines = false;  // true: it has no effect unless the part changes something

  constexpr Parameter refining() const { return {value, flag, letter, range, help, true}; }
};
template <class Part, class T>
constexpr Parameter<Part, T> parameter(T Part::*value, const char* flag, const char* letter,
                                       Range range, const char* help) {
  return {value, flag, letter, range, help};
}

// One draw: its noise depends on these two alone.
struct DrawPlace {
  uint64_t seed;
  size_t position;  // in the text, of the drawn token
};

// The settings of a draw that needs only logits. A device can make it: it takes these steps in the
// order of kPlaceOnDevice.
struct PlainDraw {
  double temperature = 1, top_p = 1, min_p = 0;
  int top_k = 0;
};

}  // namespace chaski
