// Block formats: exact values against golden files of another program, lossless layouts, panels
// that agree with at(), and errors of the encoders within bounds derived from the format.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "quant/encode/encode.h"
#include "quant/encode/random.h"
#include "quant/formats.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::vector<float> gaussian(int64_t n) {
  std::vector<float> x(static_cast<size_t>(n), 0);
  uint64_t s = 88172645463325252u;
  auto uniform = [&] {
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return double((s >> 11) + 1) / double(uint64_t(1) << 53);
  };
  for (float& v : x)
    v = float(std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()));
  return x;
}

}  // namespace

TEST_CASE("format: GGUF blocks decode to the golden values, bit for bit") {
  const auto table = nlohmann::json::parse(read_file(golden("blocks/blocks.json")));
  int n = 0;
  for (const auto& [name, entry] : table.items()) {
    CAPTURE(name);
    const int64_t blocks = entry["n_blocks"], bytes = entry["block_bytes"],
                  values = entry["values_per_block"];
    std::string lower = name == "Q8_0" ? "q8" : name;
    for (char& c : lower) c = char(std::tolower(c));
    const auto format = format_named(lower);
    REQUIRE(format.has_value());
    CHECK(int64_t(info(*format).row_block_bytes) == bytes);
    CHECK(info(*format).block == values);
    const std::string file = read_file(golden("blocks/" + name + ".bin"));
    REQUIRE(file.size() == size_t(blocks * (bytes + 4 * values)));
    const auto* row = reinterpret_cast<const std::byte*>(file.data());
    std::vector<float> want(size_t(blocks * values)), got(want.size());
    std::memcpy(want.data(), file.data() + blocks * bytes, want.size() * 4);
    decode_plain_row(*format, row, blocks * values, got.data());
    for (size_t i = 0; i < want.size(); ++i) CHECK(want[i] == got[i]);

    // To a tile, each row in another lane, and back.
    std::vector<std::byte> strip(strip_bytes(*format, blocks * values)),
        back(size_t(blocks * bytes));
    pack_strip(*format, row, 0, 11, blocks * values, strip.data());
    decode_row(*format, strip.data(), 10, blocks * values, got.data());
    for (size_t i = 0; i < want.size(); ++i) CHECK(want[i] == got[i]);
    unpack_row(*format, strip.data(), 10, blocks * values, back.data());
    CHECK(std::memcmp(back.data(), row, back.size()) == 0);
    decode_row(*format, strip.data(), 11, blocks * values, got.data());
    for (float v : got) CHECK(v == 0);
    ++n;
  }
  CHECK(n == 25);
}

TEST_CASE("format: rows of chaski's own formats go through a tile and back") {
  for (const Format f :
       {Format::q2, Format::q3, Format::q4, Format::q4t, Format::q4h, Format::q5, Format::q6}) {
    CAPTURE(info(f).name);
    const int64_t cols = 96;
    const size_t bytes = row_bytes(f, cols);
    std::vector<std::byte> rows(16 * bytes), strip(strip_bytes(f, cols)), back(bytes);
    std::vector<float> plain(static_cast<size_t>(cols)), tiled(plain);
    for (uint64_t r = 0; r < 16; ++r) random_row(f, r, 1, cols, &rows[r * bytes]);
    pack_strip(f, rows.data(), bytes, 16, cols, strip.data());
    double sum = 0;
    for (int r = 0; r < 16; ++r) {
      const std::byte* row = &rows[size_t(r) * bytes];
      unpack_row(f, strip.data(), r, cols, back.data());
      CHECK(std::memcmp(back.data(), row, bytes) == 0);
      decode_plain_row(f, row, cols, plain.data());
      decode_row(f, strip.data(), r, cols, tiled.data());
      CHECK(plain == tiled);
      for (const float x : plain) sum += double(x) * x;
    }
    CHECK(sum / double(16 * cols) == doctest::Approx(1).epsilon(0.2));  // the requested size
  }
}

TEST_CASE("format: the grids are those of the gguf package") {
  const std::string file = read_file(golden("blocks/grids.bin"));
  size_t at = 0;
  for (const Grid* grid : {&iq2_xxs_grid(), &iq2_xs_grid(), &iq2_s_grid(), &iq1_grid(),
                           &iq3_xxs_grid(), &iq3_s_grid()})
    for (int i = 0; i < grid->size(); ++i, at += 2) {
      REQUIRE(at + 2 <= file.size());
      CHECK(grid->tuple(i) == (uint8_t(file[at]) | uint8_t(file[at + 1]) << 8));
      CHECK(grid->index_of(grid->tuple(i)) == i);
    }
  CHECK(at == file.size());
}

TEST_CASE("format: a panel's integers and scales give at()'s values") {
  Formats::each([]<class F>(F) {
    if constexpr (!F::kFloat) {
      CAPTURE(F::kName);
      std::vector<std::byte> row(row_bytes(F::kFormat, F::kBlock));
      for (uint64_t seed = 1; seed < 20; ++seed) {
        random_row(F::kFormat, seed, 1, F::kBlock, row.data());
        typename F::Block b;
        std::memcpy(&b, row.data() + kHeaderBytes<F>, sizeof b);
        for (int sub = 0; sub < F::kBlock / 32; ++sub) {
          RowPanel p;
          const RowOf<F> of{row.data()};
          of.panel(b, sub, p);
          for (int i = 0; i < 32; ++i) {
            CHECK(p.q[i] <= F::kDot.max);
            const int q = (F::kDot.is_signed ? int8_t(p.q[i]) : p.q[i]) - F::kDot.offset;
            const double m =
                F::kDot.mins ? (F::kDot.halves ? p.m * double(p.mins[i / 16]) : double(p.m)) : 0;
            const double d = F::kDot.apart && i >= 16 ? p.m : p.d;
            const double value = d * (F::kDot.halves ? p.s[i / 16] : 1) * q + m;
            CHECK(value == doctest::Approx(of.at(b, 32 * sub + i)).epsilon(1e-4));
          }
        }
      }
    }
  });
}

TEST_CASE("format: halves and bfloats round to nearest even and back") {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = f32_of_f16(uint16_t(h));
    if (!std::isnan(f)) CHECK(f16_of_f32(f) == h);
    const float b = f32_of_bf16(uint16_t(h));
    if (!std::isnan(b)) CHECK(bf16_of_f32(b) == h);
  }
  CHECK(f16_of_f32(65519.9f) == 0x7bff);
  CHECK(f16_of_f32(65520.0f) == 0x7c00);
  CHECK(f16_of_f32(0x1.002p0f) == 0x3c00);  // half way, to even
  CHECK(f16_of_f32(0x1.006p0f) == 0x3c02);
  CHECK(f16_of_f32(0x1p-25f) == 0);  // half of the smallest, to even
  CHECK(f16_of_f32(0x1.8p-25f) == 1);
  CHECK(bf16_of_f32(0x1.01p0f) == 0x3f80);
  CHECK(std::isnan(f32_of_f16(f16_of_f32(NAN))));
}

TEST_CASE(
    "format: e4m3 has its values, rounds to nearest even, saturates; what is not finite is NaN") {
  for (int code = 0; code < 256; ++code) {
    CAPTURE(code);
    const float f = f32_of_f8(uint8_t(code));
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 127) == 127) {
      CHECK(std::isnan(f));
      CHECK((f8_of_f32(f) & 127) == 127);
      continue;
    }
    const double size =
        exponent ? std::ldexp(1 + mantissa / 8.0, exponent - 7) : std::ldexp(mantissa / 8.0, -6);
    CHECK(double(f) == (code < 128 ? size : -size));
    CHECK(std::signbit(f) == (code >= 128));
    CHECK(f8_of_f32(f) == code);
    if (code % 128 == 126) continue;
    // Half way to the next larger value rounds to the even code, and slightly to either side to the
    // nearer code.
    const float half = (f + f32_of_f8(uint8_t(code + 1))) / 2;
    CHECK(f8_of_f32(half) == code + code % 2);
    CHECK(f8_of_f32(std::nextafter(half, 0.0f)) == code);
    CHECK(f8_of_f32(std::nextafter(half, code < 128 ? 1e9f : -1e9f)) == code + 1);
  }
  for (float large : {449.0f, 464.0f, 480.0f, 1e30f})
    CHECK((f8_of_f32(large) == 0x7e && f8_of_f32(-large) == 0xfe));
  CHECK((f8_of_f32(INFINITY) == 0x7f && f8_of_f32(-INFINITY) == 0xff));
  CHECK(f8_of_f32(1e-30f) == 0);
  CHECK(!can_encode(Format::f8));  // no encoder writes it
}

TEST_CASE("format: encoders stay within the format's own bound") {
  const int64_t cols = 4096;
  const std::vector<float> x = gaussian(16 * cols);
  std::vector<float> y(static_cast<size_t>(cols), 0);
  CHECK(encodable_formats().size() >= 8);
  for (const Format f : encodable_formats()) {
    CAPTURE(info(f).name);
    REQUIRE(can_encode(f));
    std::vector<std::byte> strip(strip_bytes(f, cols));
    encode_strip(f, x.data(), cols, 16, cols, strip.data());
    double error = 0, size = 0;
    for (int r = 0; r < 16; ++r) {
      decode_row(f, strip.data(), r, cols, y.data());
      for (int64_t b = 0; b < cols; b += 32) {
        const float* block = x.data() + r * cols + b;
        float most = 0;
        for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(block[i]));
        for (int i = 0; i < 32; ++i) {
          const double d = double(y[size_t(b + i)]) - block[i];
          error += d * d, size += double(block[i]) * block[i];
          // Half a step, plus the effect of rounding the scale to f16 (2^-11) on the largest value.
          if (f == Format::q8) CHECK(std::fabs(d) <= most * (0.5 / 127 + 0x1p-11));
          if (f == Format::f32) CHECK(d == 0);
        }
      }
    }
    MESSAGE(std::string(info(f).name) << ": relative squared error " << error / size);
    // Q4_0 with its authors' search has .00668 on Gaussian rows.
    if (f == Format::q4_0) CHECK(error / size < 0.00668);
    if (f == Format::q4) CHECK(error / size <= 0.0053);
    if (f == Format::q4h) CHECK(error / size <= 0.0042);
    if (f == Format::q8) CHECK(error / size < 0.00003);
    if (f == Format::q2) CHECK(error / size <= 0.050);
    if (f == Format::q3) CHECK(error / size <= 0.0165);
    if (f == Format::q4t) CHECK(error / size <= 0.0042);
    if (f == Format::q5) CHECK(error / size <= 0.0014);
    if (f == Format::nf4) CHECK(error / size <= 0.0090);
    if (f == Format::q6) CHECK(error / size <= 0.0005);
    // No worse than GGUF's formats with their authors' search (docs/quantization.md).
    if (f == Format::q3_k) CHECK(error / size < 0.0209);
    if (f == Format::q4_k) CHECK(error / size < 0.005015);
    if (f == Format::q5_k) CHECK(error / size < 0.001249);
    if (f == Format::q6_k) CHECK(error / size < 0.000302);
    if (f == Format::iq4_nl) CHECK(error / size < 0.005623);
    if (f == Format::iq4_xs) CHECK(error / size < 0.005574);
    if (f == Format::q2_k) CHECK(error / size < 0.07);
    // No worse than codes that span the block from its minimum to its maximum, as its authors' do.
    if (f == Format::q4_1) CHECK(error / size < 0.00611);
    if (f == Format::q5_1) CHECK(error / size < 0.001429);
  }
}

namespace {

// The error of a block on the best path under a scale, by a table over all triples of steps.
template <class F>
double least_of_paths(uint16_t unit, uint8_t scale, const float* x) {
  typename F::Block b{};
  b.own[0] = scale;
  const double d = F::d(unit, b), centre = F::centre(b);
  double lost[2][2][2];  // indexed by the last steps, the newest first
  std::fill(&lost[0][0][0], &lost[0][0][0] + 8, INFINITY);
  lost[0][0][0] = 0;
  for (int k = 0; k < 4; ++k)
    for (int g = 0; g < 8; ++g) {
      const bool wide = F::kRest == 1 && g % 4 == 0;
      double of_class[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
      for (int code = 0; code < (wide ? 16 : 4 << F::kRest); ++code) {
        const int level = wide ? F::kWideCodebook[size_t(code)] : F::kCodebook[size_t(code)];
        const double off = x[4 * g + k] - d * (level - centre);
        of_class[code % 4] = std::min(of_class[code % 4], off * off);
      }
      double next[2][2][2];
      for (int i = 0; i < 16; ++i) {
        const int b0 = i & 1, b1 = i >> 1 & 1, b2 = i >> 2 & 1, b3 = i >> 3;
        const double way = lost[b1][b2][b3] + of_class[2 * (b0 ^ b1 ^ b3) + b2];
        next[b0][b1][b2] = b3 ? std::min(next[b0][b1][b2], way) : way;
      }
      std::memcpy(lost, next, sizeof lost);
    }
  return *std::min_element(&lost[0][0][0], &lost[0][0][0] + 8);
}

// Calls fn(row, block, x) for the blocks of a strip of Gaussian rows.
template <class F, class Fn>
void each_trellis_block(Fn fn) {
  constexpr int64_t kCols = 128;
  const std::vector<float> x = gaussian(16 * kCols);
  std::vector<std::byte> bytes(strip_bytes(F::kFormat, kCols));
  encode_strip(F::kFormat, x.data(), kCols, 16, kCols, bytes.data());
  const StripOf<F> strip(bytes.data());
  for (int r = 0; r < 16; ++r)
    for (int64_t b = 0; b < kCols / 32; ++b)
      fn(strip.row(r), F::get(strip.tiles()[b], r), &x[size_t(r * kCols + 32 * b)]);
}

double lost_in(const auto& row, const auto& block, const float* x) {
  double lost = 0;
  for (int i = 0; i < 32; ++i)
    lost += (double(row.at(block, i)) - x[i]) * (double(row.at(block, i)) - x[i]);
  return lost;
}

}  // namespace

TEST_CASE("format: the path of a trellis code is the best of all paths") {
  const auto check = []<class F>(F) {
    CAPTURE(F::kName);
    each_trellis_block<F>([](const auto& row, const auto& block, const float* x) {
      const double least = least_of_paths<F>(row.unit(), block.own[0], x);
      CHECK(lost_in(row, block, x) == doctest::Approx(least).epsilon(1e-3));
    });
  };
  check(Q2{}), check(Q3{}), check(Q4T{}), check(Q5{});
}

TEST_CASE("format: the scale of a trellis code is nearly as good as the best of all") {
  const auto check = []<class F>(F) {
    double lost = 0, least = 0;
    each_trellis_block<F>([&](const auto& row, const auto& block, const float* x) {
      double best = INFINITY;
      for (int scale = 0; scale < 256; ++scale)
        best = std::min(best, least_of_paths<F>(row.unit(), uint8_t(scale), x));
      lost += lost_in(row, block, x), least += best;
    });
    MESSAGE(std::string(F::kName) << ": search / everything: " << lost / least);
    CHECK(lost < 1.06 * least);
  };
  check(Q2{}), check(Q3{}), check(Q4T{}), check(Q5{});
}

TEST_CASE("format: values whose squares are beyond the range of floats") {
  std::vector<float> x(64, 0), y(64);
  for (size_t i = 0; i < 64; ++i) x[i] = 1e25f * float(i % 7) - 3e25f;
  std::vector<std::byte> strip(strip_bytes(Format::nf4, 64));
  encode_strip(Format::nf4, x.data(), 64, 1, 64, strip.data());
  decode_row(Format::nf4, strip.data(), 0, 64, y.data());
  for (size_t i = 0; i < 64; ++i) CHECK(std::fabs(y[i] - x[i]) < 0.5e25f);
}

TEST_CASE("format: encoding zeros, single values and ties") {
  std::vector<float> x(64, 0), y(64);
  x[40] = -3;
  for (Format f : {Format::q8, Format::q4, Format::q4h, Format::q4_0, Format::q8f, Format::q6}) {
    std::vector<std::byte> strip(strip_bytes(f, 64));
    encode_strip(f, x.data(), 64, 1, 64, strip.data());
    decode_row(f, strip.data(), 0, 64, y.data());
    const bool scaled_by_row = f == Format::q4 || f == Format::q4h || f == Format::q6;
    for (size_t i = 0; i < 64; ++i)
      CHECK(y[i] == doctest::Approx(x[i]).epsilon(scaled_by_row ? 0.02 : 1e-3));
  }
  // Also in blocks of 256. A run of zeros next to a run of other values stays exact.
  std::vector<float> wide(512, 0), back(512);
  wide[300] = -3, wide[301] = 1;
  for (Format f : {Format::q2_k, Format::q3_k, Format::q4_k, Format::q5_k, Format::q6_k,
                   Format::iq4_nl, Format::iq4_xs, Format::q4_1, Format::q5_1}) {
    CAPTURE(info(f).name);
    for (const bool search : {true, false}) {
      std::vector<std::byte> strip(strip_bytes(f, 512));
      encode_strip(f, wide.data(), 512, 1, 512, strip.data(), nullptr,
                   search ? Effort::search : Effort::fast);
      decode_row(f, strip.data(), 0, 512, back.data());
      const bool coarse = f == Format::q2_k;  // one of its four levels is 0
      CHECK(back[300] == doctest::Approx(-3).epsilon(coarse ? 0.1 : 0.02));
      CHECK(back[301] == doctest::Approx(1).epsilon(coarse ? 0.4 : 0.15));
      CHECK(std::all_of(back.begin(), back.begin() + 288, [](float v) { return v == 0; }));
    }
  }
  for (Format f :
       {Format::q2, Format::q3, Format::q4t, Format::q5}) {  // blocks and rows of zeros are exact
    std::vector<std::byte> strip(strip_bytes(f, 64));
    encode_strip(f, x.data(), 64, 1, 64, strip.data());
    decode_row(f, strip.data(), 0, 64, y.data());
    CHECK(y[40] < -2);
    CHECK(std::all_of(y.begin(), y.begin() + 32, [](float v) { return v == 0; }));
  }
}

TEST_CASE("format: a block's minimum may be positive, and values beyond f16 give no NaN") {
  std::vector<float> x(32), y(32);
  for (const float from : {100.0f, -132.0f, 1e30f})
    for (const auto& [f, codes] : {std::pair(Format::q4_1, 15), {Format::q5_1, 31}})
      for (const Effort effort : {Effort::fast, Effort::search}) {
        CAPTURE(info(f).name);
        CAPTURE(from);
        for (int i = 0; i < 32; ++i) x[size_t(i)] = from + float(i);
        std::vector<std::byte> strip(strip_bytes(f, 32));
        encode_strip(f, x.data(), 32, 1, 32, strip.data(), nullptr, effort);
        decode_row(f, strip.data(), 0, 32, y.data());
        // Compared with codes that span the block; 1.1 for the rounding of both factors to f16.
        const double step = 31.0 / codes;
        double lost = 0, spanned = 0;
        for (int i = 0; i < 32; ++i) {
          REQUIRE(std::isfinite(y[size_t(i)]));
          const double error = double(y[size_t(i)]) - x[size_t(i)],
                       of_span = step * std::nearbyint(i / step) - i;
          lost += error * error, spanned += of_span * of_span;
        }
        if (from < 1e6f) CHECK(lost <= 1.1 * spanned + 0.05);
      }
}
