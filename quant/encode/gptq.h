// Rounding with feedback: it uses the inputs of a matmul. Columns are rounded one after another,
// and each compensates, as far as it can, what the errors of earlier columns do to the outputs.
// This is GPTQ (Frantar et al. 2022) in the form of LDLQ (Chee et al. 2023), which rounds to the
// same codes and needs one triangular factor and no inverse:
//
//   X^T X = M M^T,  M upper triangular, U(j, k) = M(j, k) / M(k, k)
//   target(k) = w(k) + sum over j < k of (w(j) - rounded(j)) * U(j, k)
//
// The squared error of an output row is then the sum over k of
// M(k, k)^2 (target(k) - rounded(k))^2. So the squares M(k, k)^2 are the factors of the search
// (quant/encode/encode.h) that chooses a block's scale when its first column is reached. Blocks,
// and columns inside a block, are rounded in the order of their inputs' energy, largest first. The
// many small columns that follow can then compensate the errors of the large ones.
//
// Trellis codes (quant/own/trellis.h) choose all columns of a block B at once, in the order of the
// path. Let e be their errors, and `owed` what the errors of earlier blocks ask of them. The
// squared error of the block is
//   sum over k of M(k, k)^2 (e(k) + owed(k) + sum over j < k of e(j) U(j, k))^2,   j and k in B
// This is a form (e - z)^T M_B M_B^T (e - z) with its minimum at z. So the encoder gets the weights
// less z, and the form factorized once more in the path's order.
//
// Arithmetic is elementwise over columns or rows in a fixed order, so the bits are the same on
// every machine and for any number of threads.
#pragma once
#include <cstdint>
#include <vector>

#include "quant/format.h"

namespace chaski {

// X^T X of the inputs X of a matmul: the upper triangle, in tiles of 8 x 8. Products are summed in
// f32 over the rows of one batch, and batches in f64.
class Gram {
 public:
  explicit Gram(int64_t cols);
  static uint64_t bytes(int64_t cols);

  // Keeps `rows` rows of cols() floats for add(). row(t, to) writes row t.
  template <class Row>
  void keep(int64_t rows, Row row) {
    Batch& batch = kept_.emplace_back();
    batch.rows = rows, batch.x.resize(size_t(panels() * rows * kPanel));
    std::vector<float> x(size_t(panels() * kPanel));
    for (int64_t t = 0; t < rows; ++t) {
      row(t, x.data());
      for (int64_t c = 0; c < panels() * kPanel; ++c)
        batch.x[size_t((c / kPanel * rows + t) * kPanel + c % kPanel)] = x[size_t(c)];
    }
    tokens_ += rows;
  }
  // Adds the kept rows to the columns of one panel. Several threads may call it at the same time,
  // each with its own panels. Call drop_kept() when all panels are done.
  void add(int64_t panel);
  void drop_kept() { kept_.clear(); }

  int64_t cols() const { return cols_; }
  int64_t panels() const { return (cols_ + kPanel - 1) / kPanel; }
  int64_t tokens() const { return tokens_; }
  double at(int64_t i, int64_t j) const;

 private:
  static constexpr int64_t kPanel = 8;
  struct Batch {
    int64_t rows = 0;
    std::vector<float> x;  // (panels, rows, 8)
  };
  static int64_t tile(int64_t p, int64_t q) { return (q * (q + 1) / 2 + p) * kPanel * kPanel; }

  int64_t cols_, tokens_ = 0;
  std::vector<double> sums_;
  std::vector<Batch> kept_;
};

// The factors of a Gram matrix that rounding needs.
class Feedback {
 public:
  // Products of different columns are reduced by `shrinkage`, and `damping` times the diagonal's
  // mean is added to the diagonal. Correlations of columns differ from text to text, and without
  // these two the rounding overfits to the calibration text (docs/quantization.md). `gram` has at
  // least one token, and a multiple of 32 columns.
  explicit Feedback(const Gram& gram, double shrinkage = 0.3, double damping = 0.01);

  int64_t cols() const { return int64_t(order_.size()); }
  // By column: the squares of M's diagonal, with a mean of 1.
  const std::vector<float>& factors() const { return factors_; }
  // The same for a block's columns in the order of a trellis path: by column, and for each block
  // (32, 32) the share of the error of column q of the path that falls on column p.
  const std::vector<float>& path_factors() const { return path_factors_; }
  const std::vector<float>& path_shares() const { return path_shares_; }
  // The squared error of the outputs that these errors of up to 16 rows cause, summed over the
  // tokens of the text. The unit is the same for all calls. errors: (n_rows, cols).
  double lost(const float* errors, int n_rows) const;

 private:
  friend class StripRounder;
  // Blocks of 32 columns in the order of rounding. For each column j up to the end of the block:
  // U(j, k) for the 32 columns k of the block, 0 unless j is rounded before k.
  const float* shares(int64_t block) const {
    return shares_.data() + 32 * 32 * (block * (block + 1) / 2);
  }
  std::vector<int32_t> order_;  // columns in the order of rounding; blocks stay whole
  std::vector<float> shares_, factors_, path_factors_, path_shares_;
  std::vector<double> added_;  // to the diagonal, by column, in the units of factors_
  double kept_ = 1;            // factor on products of different columns
};

// Whether encode_strip() below can write the format.
bool feeds_back(Format f);

// Like encode_strip() in quant/encode/encode.h, but rounds with feedback. cols is feedback.cols().
void encode_strip(Format f, const float* rows, int64_t row_stride, int n_rows, int64_t cols,
                  std::byte* strip, const Feedback& feedback);

}  // namespace chaski
