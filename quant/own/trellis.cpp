// The encoders of q2, q3, q4t and q5.
#include "quant/own/trellis.h"

#include <cmath>

#include "quant/rounding.h"

namespace chaski {

namespace {

// Indexed by class, the lowest two bits of a code.
struct alignas(16) Four {
  float of[4];
};
// Four floats for arithmetic. Members in memory are plain floats, because gcc 12 loses entries of
// vectors that are members.
using Floats = float __attribute__((vector_size(16)));
inline Floats floats_of(const Four& x) {
  Floats v;
  std::memcpy(&v, &x, sizeof v);
  return v;
}

// The level of each class that is nearest to y, and its rest. The nearest level changes at
// multiples of 1/2, so each cell of that size has one.
class ClassLevels {
 public:
  template <class Level>
  ClassLevels(const Level& codebook, int levels) {
    for (int cell = 0; cell < kCells; ++cell) {
      const float y = (float(cell) + 0.5f) / 2;
      for (int c = 0; c < 4; ++c) {
        int best = c;
        for (int code = c; code < levels; code += 4)
          if (std::fabs(float(codebook[code]) - y) < std::fabs(float(codebook[best]) - y))
            best = code;
        level_[cell].of[c] = float(codebook[best]), rest_[cell][c] = uint8_t(best / 4);
      }
    }
  }
  const Four& level(float y) const { return level_[cell_of(y)]; }
  int rest(float y, int c) const { return rest_[cell_of(y)][c]; }

 private:
  static constexpr int kCells = 126;
  static int cell_of(float y) { return int(std::min(62.9f, std::max(0.0f, y)) * 2); }
  Four level_[kCells];
  uint8_t rest_[kCells][4];
};
template <class F>
const ClassLevels kNarrowLevels(F::kCodebook, 4 << F::kRest);
template <class F>
const ClassLevels kWideLevels(F::kWideCodebook, 16);

// State s of the trellis has the last three steps of a path as its bits, the newest in the lowest
// bit. So state s follows state s / 2 or s / 2 + 4. After state s / 2 the column gets a level of
// class kClass[s]. After state s / 2 + 4 its level has class (kClass[s] + 2) % 4.
constexpr int kStates = 8;
constexpr int kClass[kStates] = {0, 2, 2, 0, 1, 3, 3, 1};

// The errors of the best path to each state, states 0 to 3 and 4 to 7.
struct Ways {
  Floats lost[2] = {{0, INFINITY, INFINITY, INFINITY}, {INFINITY, INFINITY, INFINITY, INFINITY}};

  // Advances by a column. Bit s of the result: the best path to state s comes from s / 2 + 4.
  int step_on(Floats column) {
    const Floats zero = __builtin_shufflevector(lost[0], lost[0], 0, 0, 1, 1),
                 two = __builtin_shufflevector(lost[0], lost[0], 2, 2, 3, 3),
                 four = __builtin_shufflevector(lost[1], lost[1], 0, 0, 1, 1),
                 six = __builtin_shufflevector(lost[1], lost[1], 2, 2, 3, 3);
    const Floats one[2] = {zero + __builtin_shufflevector(column, column, 0, 2, 2, 0),
                           two + __builtin_shufflevector(column, column, 1, 3, 3, 1)},
                 other[2] = {four + __builtin_shufflevector(column, column, 2, 0, 0, 2),
                             six + __builtin_shufflevector(column, column, 3, 1, 1, 3)};
    int from = 0;
    for (int h = 0; h < 2; ++h) {
      const auto less = other[h] < one[h];
      lost[h] = less ? other[h] : one[h];
      from |= ((less[0] & 1) | (less[1] & 2) | (less[2] & 4) | (less[3] & 8)) << 4 * h;
    }
    return from;
  }
  float least() const {
    const Floats half = lost[1] < lost[0] ? lost[1] : lost[0];
    return std::min(std::min(half[0], half[1]), std::min(half[2], half[3]));
  }
  int best() const {
    float all[kStates];
    std::memcpy(all, lost, sizeof all);
    return int(std::min_element(all, all + kStates) - all);
  }
};

// Searches for the scale and path of one block. Columns are in the order of the path.
template <class F>
class TrellisSearch {
 public:
  TrellisSearch(uint16_t unit, const float* x, const float* factors) : unit_(f32_of_bf16(unit)) {
    for (int i = 0; i < 32; ++i) {
      x_[F::step(i)] = x[i];
      factors_[F::step(i)] = factors ? factors[i] : 1;
      top_ = std::max(top_, x[i]), bottom_ = std::max(bottom_, -x[i]);
    }
    levels_ = unit_ > 0 && std::isfinite(1 / unit_) ? 1 / unit_ : 0;
  }

  // Starts from the best shapes at several reaches, then tries neighbouring scale levels.
  void search() {
    best_ = INFINITY;
    consider(0);
    for (int shape = 0; shape < 8 && levels_ > 0; ++shape) {
      const float reach = reach_of(shape) * levels_;
      if (!(reach > 0)) break;
      uint8_t tried = 0;
      for (const float part : F::kParts)
        if (const uint8_t scale = byte(shape, part * reach); scale != tried)
          consider(tried = scale);
    }
    for (const int by : {1, -1})
      for (int level = (scale_ & 31) + by; level > 0 && level < 32; level += by) {
        const uint8_t before = scale_;
        consider(uint8_t((before & 0xe0) | level));
        if (scale_ == before) break;
      }
    price(scale_);
  }
  void choose_at_once() {
    float nearest_reach = INFINITY;
    int shape = 0;
    for (int of = 0; of < 8; ++of)
      if (const float reach = reach_of(of); reach < nearest_reach)
        nearest_reach = reach, shape = of;
    const float level = F::kFastPart * nearest_reach * levels_;
    scale_ = level > 0 ? byte(shape, level) : uint8_t(0);
    price(scale_);
  }

  // A path, and the rest of each of its columns.
  struct Way {
    uint32_t path = 0;
    uint8_t rest[32] = {};
  };
  Way best_way() const {
    Way way;
    way.path = best_path();
    const uint32_t upper = upper_steps(way.path), lower = lower_steps(way.path);
    const Scaled scaled(*this, scale_);
    for (int p = 0; p < 32 && scaled.d != 0; ++p)
      way.rest[p] = uint8_t(
          levels_at(p).rest(scaled.y(x_[p]), int((upper >> p & 1) << 1 | (lower >> p & 1))));
    return way;
  }
  // The same with feedback: the path to each state has its own errors.
  Way best_fed_way(const float* shares) const {
    Way ways[kStates];
    float lost[kStates], errors[32][kStates] = {};
    lost[0] = 0;
    std::fill(lost + 1, lost + kStates, INFINITY);
    const Scaled scaled(*this, scale_);
    for (int p = 0; p < 32; ++p) {
      const ClassLevels& levels = levels_at(p);
      float wanted[kStates];
      std::fill(wanted, wanted + kStates, x_[p]);
      for (int q = 0; q < p; ++q)
        for (int s = 0; s < kStates; ++s) wanted[s] += errors[q][s] * shares[32 * q + p];
      const float worth = factors_[p] * scaled.d * scaled.d;
      float next_lost[kStates];
      int from[kStates];
      for (int s = 0; s < kStates; ++s) {
        float of[2];
        for (int other = 0; other < 2; ++other) {
          const float x = wanted[s / 2 + 4 * other], y = scaled.y(x),
                      off = levels.level(y).of[kClass[s] ^ 2 * other] - y;
          of[other] =
              lost[s / 2 + 4 * other] + (scaled.d != 0 ? worth * off * off : factors_[p] * x * x);
        }
        from[s] = of[1] < of[0] ? s / 2 + 4 : s / 2;
        next_lost[s] = of[1] < of[0] ? of[1] : of[0];
      }
      Way next[kStates];
      for (int s = 0; s < kStates; ++s) {
        const float y = scaled.y(wanted[from[s]]);
        const int of_class = kClass[s] ^ (from[s] < 4 ? 0 : 2);
        next[s] = ways[from[s]];
        next[s].path |= uint32_t(s & 1) << p;
        if (scaled.d != 0) next[s].rest[p] = uint8_t(levels.rest(y, of_class));
        errors[p][s] = x_[p] - scaled.d * (levels.level(y).of[of_class] - scaled.centre);
      }
      for (int q = 0; q < p; ++q) {
        float before[kStates];
        std::memcpy(before, errors[q], sizeof before);
        for (int s = 0; s < kStates; ++s) errors[q][s] = before[from[s]];
      }
      std::copy(next, next + kStates, ways);
      std::memcpy(lost, next_lost, sizeof lost);
    }
    return ways[std::min_element(lost, lost + kStates) - lost];
  }

  void write(const Way& way, typename F::Block& block) const {
    block = {};
    for (int k = 0; k < 4; ++k) block.path[k] = uint8_t(way.path >> 8 * k);
    block.own[0] = scale_;
    for (int i = 0; i < 32; ++i) F::put_rest(block, i, way.rest[F::step(i)]);
  }

 private:
  // The codebook under a scale; d is 0 if the scale is.
  struct Scaled {
    float d, inverse, centre;
    Scaled(const TrellisSearch& search, int scale)
        : d((scale & 128 ? -search.unit_ : search.unit_) * float(scale & 31)),
          inverse(d != 0 ? 1 / d : 0),
          centre(centre_of(scale)) {}
    float y(float x) const { return x * inverse + centre; }
  };
  // The wide columns of the path are those with p % 4 = 0.
  static const ClassLevels& levels_at(int p) {
    return F::kWider && p % 4 == 0 ? kWideLevels<F> : kNarrowLevels<F>;
  }
  static float centre_of(int scale) { return float(F::kCentres[scale >> 5 & 3]); }
  // A shape is the upper three bits of a scale: centre and sign.
  static uint8_t byte(int shape, float level) {
    return uint8_t(shape << 5 | std::clamp(int(nearest(std::min(level, 31.0f))), 1, 31));
  }
  // The scale under which the codebook just reaches the largest value on each side.
  float reach_of(int shape) const {
    const float top = shape & 4 ? bottom_ : top_, bottom = shape & 4 ? top_ : bottom_,
                centre = centre_of(shape << 5);
    return std::max(top / (63 - centre), bottom / centre);
  }

  // The squared error of each column under a scale, by class.
  void price(uint8_t scale) {
    const Scaled scaled(*this, scale);
    for (int p = 0; p < 32; ++p) {
      const float y = scaled.y(x_[p]), worth = factors_[p] * scaled.d * scaled.d;
      const Floats off = floats_of(levels_at(p).level(y)) - y;
      const Floats lost =
          scaled.d != 0 ? worth * off * off : Floats{} + factors_[p] * x_[p] * x_[p];
      std::memcpy(&lost_[p], &lost, sizeof lost);
    }
  }
  void consider(uint8_t scale) {
    price(scale);
    if (const float lost = least(); lost < best_) best_ = lost, scale_ = scale;
  }

  // The best path so far.
  float least() const {
    Ways ways;
    for (const Four& column : lost_) ways.step_on(floats_of(column));
    return ways.least();
  }
  uint32_t best_path() const {
    Ways ways;
    int from[32];
    for (int p = 0; p < 32; ++p) from[p] = ways.step_on(floats_of(lost_[p]));
    int state = ways.best();
    uint32_t path = 0;
    for (int p = 31; p >= 0; --p) {
      path |= uint32_t(state & 1) << p;
      state = state / 2 | (from[p] >> state & 1) << 2;
    }
    return path;
  }

  float unit_, levels_, best_ = INFINITY;
  float top_ = 0, bottom_ = 0;  // the largest values on each side
  float x_[32], factors_[32];
  Four lost_[32];
  uint8_t scale_ = 0;
};

template <class F>
void encode_trellis_at_once(uint16_t unit, const float* x, typename F::Block& block) {
  TrellisSearch<F> search(unit, x, nullptr);
  search.choose_at_once();
  search.write(search.best_way(), block);
}

}  // namespace

template <class F, int kRest>
auto Trellis<F, kRest>::header_of(const float* row, int64_t cols) -> RowHeader {
  return bf16_of_f32(max_abs(row, int(cols)) / (F::kReach * 31));
}

template <class F, int kRest>
void Trellis<F, kRest>::encode(RowHeader unit, const float* x, const float* factors, Effort effort,
                               Block& block) {
  if (effort == Effort::fast) return encode_trellis_at_once<F>(unit, x, block);
  TrellisSearch<F> search(unit, x, factors);
  search.search();
  search.write(search.best_way(), block);
}

template <class F, int kRest>
void Trellis<F, kRest>::encode_fed(RowHeader unit, const float* x, const float* factors,
                                   const float* shares, Block& block) {
  TrellisSearch<F> search(unit, x, factors);
  search.search();
  search.write(search.best_fed_way(shares), block);
}

template struct Trellis<Q3, 2>;
template struct Trellis<Q2, 1>;
template struct Trellis<Q4T, 3>;
template struct Trellis<Q5, 4>;

}  // namespace chaski
