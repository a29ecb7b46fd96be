// Chooses the format of each weight for a budget: a total size, or a KL divergence from the base
// model. It needs the divergence of the model with one weight in 4 bits, for every weight
// (engine/quantize/sensitivity.h).
//
// The prediction assumes that the divergences of single weights add up, and that each grows in
// proportion to the weight's squared error, weighted by its inputs (InputSquares). Both hold for
// small errors.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/quantize/weight_job.h"

namespace chaski {

// The format of each tensor, by name.
using Recipe = std::map<std::string, Format>;

// The budget: one of these is given.
struct RecipeLimit {
  std::optional<uint64_t> file_bytes;     // of the file, at most
  std::optional<uint64_t> bytes;          // of all tensors, at most
  std::string asked = {};                 // the flag that `bytes` come from
  std::optional<double> bits_per_weight;  // of all tensors, at most
  std::optional<double> kl;               // at most, as predicted
  uint64_t overhead = 0;                  // bytes of the file that are not tensors
};

struct FormatPlan {
  Recipe recipe;  // for every tensor
  struct Row {
    std::string name;
    Format to;
    uint64_t bytes;
    double kl;  // as predicted
  };
  std::vector<Row> tensors;
  uint64_t bytes = 0, weights = 0;
  uint64_t file_bytes = 0;  // at most
  double kl = 0;
  double bits_per_weight() const { return 8.0 * double(bytes) / double(weights); }
};

// Throws Error(usage) if the budget is below the fewest bits of every weight. It needs no
// calibration, so a caller finds out before it measures one.
void expect_possible(const WeightJobs& jobs, const std::string& file, const RecipeLimit& budget);

// What each weight costs in each format. Its constructor encodes a sample of every weight in every
// format; after that a plan takes no time.
class FormatCosts {
 public:
  // Throws Error(usage) if the calibration has no kl.
  FormatCosts(const WeightJobs& jobs, const std::string& file, const Calibration& calibration,
              int threads);
  ~FormatCosts();
  // Every weight starts in the format of fewest bits. Then the step that saves the most divergence
  // per byte is taken first: the greedy walk along the convex hulls, which misses the best plan by
  // less than one step. Throws Error(usage) if even the fewest bits take more than the budget; the
  // message has both numbers.
  FormatPlan plan(const RecipeLimit& budget) const;

  struct Option;
  struct Hull;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

// Reads a recipe from text with lines "regex = type". A tensor gets the type of the first line
// whose regex matches a part of its name; # begins a comment. `model` is the model's file.
Recipe read_recipe(const std::string& file, std::string_view text, const WeightJobs& jobs,
                   const std::string& model);
void save_recipe(const std::string& path, const Recipe& recipe);  // throws Error(io)

}  // namespace chaski
