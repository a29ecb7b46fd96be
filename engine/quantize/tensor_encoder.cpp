#include "engine/quantize/tensor_encoder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/error.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

using Clock = std::chrono::steady_clock;

// infinities and NaN are the floats whose bits without the sign are at least this
constexpr uint32_t kInfinity = 0x7f800000;
uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

}  // namespace

int64_t strips_of(const TensorInfo& info) {
  return info.tiled() ? (info.rows + kStrip - 1) / kStrip : 1;
}

TensorEncoder::TensorEncoder(const TensorSource& source, Format to, std::string file,
                             Rounding rounding)
    : source_(source),
      to_(to),
      file_(std::move(file)),
      rounding_(rounding),
      compared_(static_cast<size_t>(experts())),
      errors_(strips_of(source.info)) {
  if (rounding.inputs && weighs_columns(to)) factors_ = rounding.inputs->factors();
  ENSURE(to == source.info.format || to == Format::f32 || source.info.tiled(),
         "a vector becomes f32 or keeps its format");
}

int TensorEncoder::rows_in(int64_t strip) const {
  return int(std::min<int64_t>(kStrip, from().rows - strip * kStrip));
}

uint64_t TensorEncoder::bytes_of_strip() const {
  return from().tiled() ? strip_bytes(from().format, from().cols) : from().bytes();
}

void TensorEncoder::encode(int64_t strip, std::byte* dst) {
  std::vector<std::byte> packed(bytes_of_strip());
  source_.read(strip, strip + 1, packed.data());
  const auto start = Clock::now();
  const std::vector<float> before = decoded(from().format, packed.data(), strip);
  check_finite(before, strip);
  if (to_ == from().format) {
    std::memcpy(dst, packed.data(), packed.size());
  } else {
    write(before, strip, dst);
    const std::vector<float> after = decoded(to_, dst, strip);
    StripError sum[4];  // four chains, so that no addition waits for another
    for (size_t i = 0; i < before.size(); ++i) {
      const double x = before[i], lost = x - after[i];
      sum[i % 4].lost += lost * lost, sum[i % 4].all += x * x;
    }
    errors_[strip] = {sum[0].lost + sum[1].lost + sum[2].lost + sum[3].lost,
                      sum[0].all + sum[1].all + sum[2].all + sum[3].all};
    if (!factors(strip).empty()) weigh(before, after, strip);
  }
  errors_[strip].read = checksum(packed.data(), packed.size());
  nanoseconds_ += std::chrono::nanoseconds(Clock::now() - start).count();
}

void TensorEncoder::encode_in_range(int64_t strip, std::byte* dst) {
  encode(strip, dst);
  if (std::isfinite(errors_[strip].lost)) return;
  const std::vector<float> after = decoded(to_, dst, strip);
  const auto bad =
      std::find_if(after.begin(), after.end(), [](float x) { return magnitude(x) >= kInfinity; });
  refuse(strip, bad - after.begin(), *bad,
         fmt::format("a value in the range of {} (bf16 and f32 hold every one)", info(to_).name));
}

double TensorEncoder::error() const {
  StripError sum;
  for (const StripError& s : errors_) sum.lost += s.lost, sum.all += s.all;
  return sum.lost > 0 || std::isnan(sum.lost) ? sum.lost / sum.all : 0;
}

uint64_t TensorEncoder::sum_of_strips() const {
  std::vector<uint64_t> sums;
  for (const StripError& strip : errors_) sums.push_back(strip.read);
  return checksum(sums.data(), sums.size() * sizeof(uint64_t));
}

TensorEncoder::Notes TensorEncoder::notes() const {
  Notes notes;
  for (const StripError& strip : errors_) notes.lost += strip.lost, notes.all += strip.all;
  notes.outputs = outputs(), notes.read = sum_of_strips();
  return notes;
}

bool TensorEncoder::recall(const Notes& notes) {
  std::vector<std::byte> packed(bytes_of_strip());
  for (int64_t strip = 0; strip < strips_of(from()); ++strip) {
    source_.read(strip, strip + 1, packed.data());
    errors_[strip] = {};
    errors_[strip].read = checksum(packed.data(), packed.size());
  }
  errors_[0].lost = notes.lost, errors_[0].all = notes.all;
  recalled_ = notes.outputs;
  return sum_of_strips() == notes.read;
}

double TensorEncoder::weighed_error() const {
  StripError sum;
  for (const StripError& s : errors_)
    sum.weighed_lost += s.weighed_lost, sum.weighed_all += s.weighed_all;
  return sum.weighed_all > 0 ? sum.weighed_lost / sum.weighed_all : error();
}

void TensorEncoder::weigh(const std::vector<float>& before, const std::vector<float>& after,
                          int64_t strip) {
  StripError& sum = errors_[strip];
  for (size_t i = 0; i < before.size(); ++i) {
    const double x = before[i], lost = x - after[i], f = factors(strip)[i % size_t(from().cols)];
    sum.weighed_lost += f * lost * lost, sum.weighed_all += f * x * x;
  }
}

std::vector<float> TensorEncoder::decoded(Format format, const std::byte* data,
                                          int64_t strip) const {
  const int64_t cols = from().cols;
  std::vector<float> values(rows_in(strip) * cols);
  if (!from().tiled()) decode_plain_row(format, data, cols, values.data());
  for (int r = 0; from().tiled() && r < rows_in(strip); ++r)
    decode_row(format, data, r, cols, values.data() + r * cols);
  return values;
}

void TensorEncoder::write(const std::vector<float>& values, int64_t strip, std::byte* dst) {
  if (!from().tiled()) return void(std::memcpy(dst, values.data(), values.size() * sizeof(float)));
  const int64_t expert = strip * experts() / strips_of(from());
  const auto feedback = rounding_.feedbacks && feeds_back(to_)
                            ? rounding_.feedbacks->of({from().name, experts() > 1 ? expert : -1})
                            : nullptr;
  Compared& compared = compared_[size_t(expert)];
  if (feedback) std::call_once(compared.once, [&] { compare(*feedback, expert); });
  if (!compared.outputs.feeds_back) return search(values, strip, dst);
  encode_strip(to_, values.data(), from().cols, rows_in(strip), from().cols, dst, *feedback);
}

void TensorEncoder::search(const std::vector<float>& values, int64_t strip, std::byte* dst) const {
  encode_strip(to_, values.data(), from().cols, rows_in(strip), from().cols, dst,
               factors(strip).empty() ? nullptr : factors(strip).data(),
               rounding_.method == RoundingMethod::fast ? Effort::fast : Effort::search);
}

TensorEncoder::Outputs TensorEncoder::outputs() const {
  if (recalled_) return *recalled_;
  Outputs mean;
  double n = 0;
  for (const Compared& c : compared_) {
    if (!c.known) continue;
    mean.search += c.outputs.search, mean.gptq += c.outputs.lost(), ++n;
    mean.feeds_back |= c.outputs.feeds_back;
  }
  if (compared_.size() == 1) return compared_[0].outputs;
  if (n > 0) mean.search /= n, mean.gptq /= n;
  return mean;
}

std::vector<int64_t> TensorEncoder::searched() const {
  std::vector<int64_t> without;
  for (size_t e = 0; e < compared_.size(); ++e)
    if (!compared_[e].known) without.push_back(int64_t(e));
  return without.size() < compared_.size() ? without : std::vector<int64_t>();
}

void TensorEncoder::compare(const Feedback& feedback, int64_t expert) {
  constexpr int64_t kSample = 4;
  const int64_t strips = strips_of(from()) / experts();
  Outputs& outputs = compared_[size_t(expert)].outputs;
  double all = 0, by_search = 0, by_feedback = 0;
  std::vector<std::byte> bytes(strip_bytes(from().format, from().cols)),
      packed(strip_bytes(to_, from().cols));
  for (int64_t i = 0; i < std::min(kSample, strips); ++i) {
    const int64_t strip = expert * strips + i * strips / std::min(kSample, strips);
    source_.read(strip, strip + 1, bytes.data());
    const std::vector<float> values = decoded(from().format, bytes.data(), strip);
    const auto lost = [&] {
      std::vector<float> errors = decoded(to_, packed.data(), strip);
      for (size_t c = 0; c < errors.size(); ++c) errors[c] = values[c] - errors[c];
      return feedback.lost(errors.data(), rows_in(strip));
    };
    search(values, strip, packed.data()), by_search += lost();
    encode_strip(to_, values.data(), from().cols, rows_in(strip), from().cols, packed.data(),
                 feedback);
    by_feedback += lost(), all += feedback.lost(values.data(), rows_in(strip));
  }
  if (all > 0) outputs.search = by_search / all, outputs.gptq = by_feedback / all;
  outputs.feeds_back = rounding_.method == RoundingMethod::gptq || by_feedback < by_search;
  compared_[size_t(expert)].known = true;
}

void TensorEncoder::check_finite(const std::vector<float>& values, int64_t strip) const {
  uint32_t most[8] = {};  // eight chains without branches, so that none waits
  size_t i = 0;
  for (; i + 8 <= values.size(); i += 8)
    for (size_t k = 0; k < 8; ++k) most[k] = std::max(most[k], magnitude(values[i + k]));
  for (; i < values.size(); ++i) most[0] = std::max(most[0], magnitude(values[i]));
  if (*std::max_element(most, most + 8) < kInfinity) return;
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float x) { return magnitude(x) >= kInfinity; });
  refuse(strip, bad - values.begin(), *bad, "a finite number");
}

void TensorEncoder::refuse(int64_t strip, int64_t index, float value,
                           std::string_view expected) const {
  fail(Exit::bad_file, "{}: tensor {}: weight ({}, {}) is {}, expected {}", file_,
       escaped(from().name), strip * kStrip + index / from().cols, index % from().cols, value,
       expected);
}

}  // namespace chaski
