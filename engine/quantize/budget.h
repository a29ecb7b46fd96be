// Bits where they are needed: how far a model moves if one weight alone is encoded in 4 bits is
// measured, weight by weight; from that follows which format each is to have so that the whole fits
// into so many bytes, or stays so near to its base.
//
// What is foretold: the divergences of single weights add up, and grow with the squared error that
// the inputs see (InputSquares). Both hold for small errors.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/quantize/calibration.h"

namespace chaski {

// By tensor: the format it is to have.
using Recipe = std::map<std::string, Format>;

// Fills calibration.kl: the text's last window is read once for every weight that a recipe may
// encode. Told of progress in weights. Throws what Engine::open throws.
void measure_sensitivity(const CalibrationText& text, Calibration& calibration, int threads,
                         const OnProgress& progress);

// One of them is given.
struct RecipeLimit {
  std::optional<uint64_t> bytes;          // of all tensors, at most
  std::string asked = {};                 // how `bytes` were asked for, if by something else
  std::optional<double> bits_per_weight;  // of all tensors, at most
  std::optional<double> kl;               // at most, as foretold
};

struct Allotment {
  Recipe recipe;  // of every tensor
  struct Row {
    std::string name;
    Format to;
    uint64_t bytes;
    double kl;  // as foretold
  };
  std::vector<Row> tensors;
  uint64_t bytes = 0, weights = 0;
  double kl = 0;
  double bits_per_weight() const { return 8.0 * double(bytes) / double(weights); }
};

// Every weight begins in the format of fewest bits, and what buys the most divergence for a byte is
// bought first: the greedy walk along the convex hulls, which misses the best allotment by less
// than one step. Throws Error(usage) if the calibration has no kl, and if even the fewest bits are
// too many, or the most too few, with both numbers.
Allotment allot(const ModelSource& in, const Calibration& calibration, const RecipeLimit& budget,
                int threads);

// A recipe that others have a name for, llama.cpp's Q4_K_M: in its own formats where `type` is one
// that GGUF has (of blocks of 32 columns where those of 256 are not filled), else in chaski's of
// about as many bits. Nothing: it is no such name.
std::optional<Recipe> known_recipe(std::string_view name, const ModelSource& in, Format type);
// A recipe as text: lines "regex = type". A tensor gets the type of the first line whose regex is
// found in its name; # begins a comment.
Recipe read_recipe(const std::string& file, std::string_view text, const ModelSource& in);
void save_recipe(const std::string& path, const Recipe& recipe);  // throws Error(io)

}  // namespace chaski
