// See gptq.h.
#include "quant/encode/gptq.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "quant/formats.h"

namespace chaski {

namespace {

// A vector of gcc. On machines with shorter registers gcc makes two instructions of one.
using Floats4 = float __attribute__((vector_size(16)));
using Doubles2 = double __attribute__((vector_size(16)));

inline Floats4 load4(const float* x) {
  Floats4 v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
inline Doubles2 load2(const double* x) {
  Doubles2 v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

// sums (8, 8) += x^T y, both (rows, 8).
void add_tile(const float* x, const float* y, int64_t rows, double* sums) {
  for (int half = 0; half < 8; half += 4) {
    Floats4 sum[4][2] = {};
    for (int64_t t = 0; t < rows; ++t) {
      const Floats4 low = load4(y + 8 * t), high = load4(y + 8 * t + 4);
      for (int i = 0; i < 4; ++i) {
        const float a = x[8 * t + half + i];
        sum[i][0] += a * low, sum[i][1] += a * high;
      }
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 8; ++j) sums[8 * (half + i) + j] += double(sum[i][j / 4][j % 4]);
  }
}

// (16 rows, two columns) += errors (n, 16) times two columns of shares (n, 32).
void add_shares(const float* errors, const float* shares, int64_t n, float* first, float* second) {
  Floats4 sum[2][4];
  for (int r = 0; r < 4; ++r) sum[0][r] = load4(first + 4 * r), sum[1][r] = load4(second + 4 * r);
  for (int64_t j = 0; j < n; ++j) {
    const float a = shares[32 * j], b = shares[32 * j + 1];
    for (int r = 0; r < 4; ++r) {
      const Floats4 e = load4(errors + 16 * j + 4 * r);
      sum[0][r] += a * e, sum[1][r] += b * e;
    }
  }
  std::memcpy(first, sum[0], sizeof sum[0]);
  std::memcpy(second, sum[1], sizeof sum[1]);
}

// A lower triangle, row after row.
class Triangle {
 public:
  explicit Triangle(int64_t n) : x_(size_t(n * (n + 1) / 2)) {}
  double* row(int64_t i) { return x_.data() + i * (i + 1) / 2; }

 private:
  std::vector<double> x_;
};

// sum over k < n of a(k) * b(k), for 8 neighbouring rows a.
void dots(Triangle& l, int64_t first, const double* b, int64_t n, double* out) {
  Doubles2 sum[8] = {};
  const double* a[8];
  for (int i = 0; i < 8; ++i) a[i] = l.row(first + i);
  int64_t k = 0;
  for (; k + 2 <= n; k += 2) {
    const Doubles2 y = load2(b + k);
    for (int i = 0; i < 8; ++i) sum[i] += load2(a[i] + k) * y;
  }
  for (int i = 0; i < 8; ++i) out[i] = sum[i][0] + sum[i][1] + (k < n ? a[i][k] * b[k] : 0);
}

// Replaces the matrix by L with L L^T = matrix (Cholesky). n is a multiple of 8. Without rounding,
// the square of each diagonal entry of L is at least the least eigenvalue, which is at least
// `least`. So a smaller square is a rounding error and is raised to `least`.
void factorize(Triangle& l, int64_t n, double least) {
  for (int64_t first = 0; first < n; first += 8) {
    double dot[8];
    for (int64_t j = 0; j < first + 8; ++j) {
      const double* b = l.row(j);
      const int64_t inside = std::max<int64_t>(j - first, 0);  // rows above do not have the column
      dots(l, first, b, std::min(j, first), dot);
      for (int64_t i = inside; i < 8; ++i) {
        double* a = l.row(first + i);
        double left = a[j] - dot[i];
        for (int64_t k = first; k < j; ++k) left -= a[k] * b[k];
        a[j] = first + i == j ? std::sqrt(std::max(left, least)) : left / b[j];
      }
    }
  }
}

}  // namespace

Gram::Gram(int64_t cols) : cols_(cols), sums_(size_t(tile(0, panels()))) {}

uint64_t Gram::bytes(int64_t cols) { return uint64_t(cols) * uint64_t(cols + kPanel) / 2 * 8; }

void Gram::add(int64_t panel) {
  for (const Batch& batch : kept_)
    for (int64_t p = 0; p <= panel; ++p)
      add_tile(&batch.x[size_t(p * batch.rows * kPanel)],
               &batch.x[size_t(panel * batch.rows * kPanel)], batch.rows,
               &sums_[size_t(tile(p, panel))]);
}

double Gram::at(int64_t i, int64_t j) const {
  if (i > j) std::swap(i, j);
  return sums_[size_t(tile(i / kPanel, j / kPanel) + i % kPanel * kPanel + j % kPanel)];
}

Feedback::Feedback(const Gram& gram, double shrinkage, double damping) : kept_(1 - shrinkage) {
  const int64_t n = gram.cols();
  std::vector<double> energy(static_cast<size_t>(n)), of_block(size_t(n / 32));
  double mean = 0;
  for (int64_t c = 0; c < n; ++c) {
    energy[size_t(c)] = gram.at(c, c);
    of_block[size_t(c / 32)] += gram.at(c, c), mean += gram.at(c, c) / double(n);
  }
  order_.resize(size_t(n));
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const double x = of_block[size_t(a / 32)], y = of_block[size_t(b / 32)];
    if (a / 32 != b / 32) return x != y ? x > y : a < b;
    return energy[size_t(a)] > energy[size_t(b)];
  });

  // X^T X = M M^T, where M is upper triangular (gptq.h). If both have their rows and columns in
  // reverse order, M is the lower Cholesky factor of X^T X.
  const double more = mean > 0 ? damping * mean : 1;
  Triangle l(n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      l.row(i)[j] =
          gram.at(order_[size_t(n - 1 - i)], order_[size_t(n - 1 - j)]) * (i == j ? 1 : kept_) +
          (i == j ? more : 0);
  factorize(l, n, more);

  double all = 0;
  for (int64_t k = 0; k < n; ++k) all += l.row(k)[k] * l.row(k)[k];
  const double unit = double(n) / all;
  factors_.resize(size_t(n));
  for (int64_t c = 0; c < n; ++c) added_.push_back((more + shrinkage * energy[size_t(c)]) * unit);
  for (int64_t k = 0; k < n; ++k) {
    const double m = l.row(n - 1 - k)[n - 1 - k];
    factors_[size_t(order_[size_t(k)])] = float(m * m * unit);
  }
  // M(j, k) is l(n - 1 - j, n - 1 - k).
  path_factors_.resize(size_t(n)), path_shares_.resize(size_t(32 * n));
  for (int64_t first = 0; first < n; first += 32) {
    int place[32] =
        {};  // of the path's columns, from the last to the first, in the order of rounding
    for (int k = 0; k < 32; ++k) place[31 - Q3::step(order_[size_t(first + k)] % 32)] = k;
    Triangle form(32);
    for (int i = 0; i < 32; ++i)
      for (int j = 0; j <= i; ++j)
        for (int64_t k = std::max(place[i], place[j]); k < 32; ++k)
          form.row(i)[j] += l.row(n - 1 - first - place[i])[n - 1 - first - k] *
                            l.row(n - 1 - first - place[j])[n - 1 - first - k];
    factorize(form, 32, more);
    const int64_t block = order_[size_t(first)] / 32;
    for (int p = 0; p < 32; ++p) {
      const double m = form.row(31 - p)[31 - p];
      path_factors_[size_t(order_[size_t(first + place[31 - p])])] = float(m * m * unit);
      for (int q = 0; q < p; ++q)
        path_shares_[size_t(32 * (32 * block + q) + p)] = float(form.row(31 - q)[31 - p] / m);
    }
  }
  shares_.resize(size_t(32 * 32 * (n / 32) * (n / 32 + 1) / 2));
  float* to = shares_.data();
  for (int64_t block = 0; block < n / 32; ++block)
    for (int64_t j = 0; j < 32 * block + 32; ++j)
      for (int64_t k = 32 * block; k < 32 * block + 32; ++k, ++to)
        if (j < k) *to = float(l.row(n - 1 - j)[n - 1 - k] / l.row(n - 1 - k)[n - 1 - k]);
}

// 16 rows while they are rounded: their errors so far, and what these ask of the next columns.
class StripRounder {
 public:
  explicit StripRounder(const Feedback& feedback)
      : feedback_(feedback), errors_(size_t(16 * feedback.cols())) {}

  // What the errors of blocks that were rounded earlier ask of the columns of this block.
  void begin(int64_t block) {
    block_ = block;
    std::memset(owed_, 0, sizeof owed_);
    for (int k = 0; k < 32; k += 2)
      add_shares(errors_.data(), feedback_.shares(block) + k, 32 * block, owed_[k], owed_[k + 1]);
  }
  // The same for a block whose columns are rounded all at once in their own order. Columns of the
  // same block ask nothing of each other here.
  void share_out() {
    const float* shares = feedback_.shares(block_) + 32 * 32 * block_;
    for (int k = 0; k < 32; ++k)
      for (int next = k + 1; next < 32; ++next)
        for (int r = 0; r < 16; ++r) owed_[next][r] -= shares[32 * k + next] * owed_[k][r];
  }
  int32_t column(int k) const { return feedback_.order_[size_t(32 * block_ + k)]; }
  float owed(int k, int r) const { return owed_[k][r]; }
  // Records the errors of all rows in column(k), and adds them to the later columns of the block.
  void put(int k, const float* errors) {
    float* at = &errors_[size_t(16 * (32 * block_ + k))];
    std::memcpy(at, errors, 16 * sizeof(float));
    const float* shares = feedback_.shares(block_) + 32 * (32 * block_ + k);
    for (int next = k + 1; next < 32; ++next)
      for (int r = 0; r < 16; ++r) owed_[next][r] += shares[next] * at[r];
  }

 private:
  const Feedback& feedback_;
  int64_t block_ = 0;
  std::vector<float> errors_;  // (columns as they are rounded, 16)
  alignas(16) float owed_[32][16];
};

double Feedback::lost(const float* errors, int n_rows) const {
  StripRounder strip(*this);
  double sum = 0;
  for (int64_t block = 0; block < cols() / 32; ++block) {
    strip.begin(block);
    for (int k = 0; k < 32; ++k) {
      const int32_t c = strip.column(k);
      float e[16] = {};
      for (int r = 0; r < n_rows; ++r) {
        e[r] = errors[r * cols() + c];
        const double seen = double(e[r]) + double(strip.owed(k, r));
        sum += double(factors_[size_t(c)]) * seen * seen -
               added_[size_t(c)] * double(e[r]) * double(e[r]);
      }
      strip.put(k, e);
    }
  }
  return sum / kept_;
}

namespace {

// Formats that can round one value of a block after its scale is chosen.
template <class F>
constexpr bool kRoundsOne = requires(typename F::Block& block) {
  F::round(block, 0, 0.0f);
}
|| requires(typename F::Block& block, uint16_t header) { F::round(header, block, 0, 0.0f); };
// Formats that choose all values of a block at once.
template <class F>
constexpr bool kRoundsBlocks = requires {
  &F::encode_fed;
};
template <class F>
constexpr bool kFeedsBack = kRoundsOne<F> || kRoundsBlocks<F>;

// Calls the encoder of a row's block, with the row's header if the format has one.
template <class F>
struct RowRounder {
  const float* row;
  uint16_t header = 0;

  RowRounder(const float* row, int64_t cols) : row(row) {
    if constexpr (kHasHeader<F>) header = F::header_of(row, cols);
  }
  void begin(const float* x, const Feedback& feedback, int64_t first,
             typename F::Block& block) const {
    const float* factors = feedback.factors().data() + first;
    if constexpr (kRoundsBlocks<F>)
      F::encode_fed(header, x, feedback.path_factors().data() + first,
                    feedback.path_shares().data() + 32 * first, block);
    else if constexpr (kHasHeader<F>)
      F::encode(header, x, factors, Effort::search, block);
    else
      F::encode(x, factors, Effort::search, block);
  }
  float round(typename F::Block& block, int i, float x) const {
    if constexpr (kRoundsOne<F>) {
      if constexpr (kHasHeader<F>)
        F::round(header, block, i, x);
      else
        F::round(block, i, x);
    }
    return RowOf<F>{&header}.at(block, i);
  }
};

template <class F>
void round_strip(const std::vector<RowRounder<F>>& rows, const Feedback& feedback,
                 std::byte* bytes) {
  auto* tiles = const_cast<typename F::Tile*>(StripOf<F>(bytes).tiles());
  const int n = int(rows.size());
  if constexpr (kHasHeader<F>)
    for (int r = 0; r < n; ++r)
      std::memcpy(bytes + size_t(r) * kHeaderBytes<F>, &rows[size_t(r)].header, kHeaderBytes<F>);
  StripRounder strip(feedback);
  for (int64_t at = 0; at < feedback.cols() / 32; ++at) {
    strip.begin(at);
    if (kRoundsBlocks<F>) strip.share_out();
    const int64_t first = strip.column(0) / 32 * 32;
    typename F::Block blocks[16];
    for (int r = 0; r < n; ++r) {
      float x[32];
      for (int k = 0; k < 32; ++k) {
        const int32_t c = strip.column(k);
        x[c - first] = rows[size_t(r)].row[c] + strip.owed(k, r);
      }
      rows[size_t(r)].begin(x, feedback, first, blocks[r]);
    }
    for (int k = 0; k < 32; ++k) {
      const int32_t c = strip.column(k);
      float errors[16] = {};
      for (int r = 0; r < n; ++r) {
        const float x = rows[size_t(r)].row[c];
        errors[r] = x - rows[size_t(r)].round(blocks[r], int(c - first), x + strip.owed(k, r));
      }
      strip.put(k, errors);
    }
    for (int r = 0; r < n; ++r) F::put(blocks[r], r, tiles[first / 32]);
  }
}

}  // namespace

bool feeds_back(Format f) {
  bool can = false;
  Formats::with(f, [&]<class F>(F) { can = kFeedsBack<F>; });
  return can;
}

void encode_strip(Format f, const float* rows, int64_t row_stride, int n_rows, int64_t cols,
                  std::byte* strip, const Feedback& feedback) {
  std::memset(strip, 0, strip_bytes(f, cols));
  Formats::with(f, [&]<class F>(F) {
    if constexpr (kFeedsBack<F>) {
      std::vector<RowRounder<F>> all;
      for (int r = 0; r < n_rows; ++r) all.emplace_back(rows + r * row_stride, cols);
      round_strip<F>(all, feedback, strip);
    }
  });
}

}  // namespace chaski
