#include "models/import/hf/hf_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "ggml-like-tensor/base/error.h"
#include "models/import/row_tensors.h"
#include "quant/half.h"

namespace chaski {

TensorSource transposed_experts(const TensorSlot& slot, const SafeTensor& t) {
  if (t.shape.size() < 2 || slot.experts < 1 || t.shape[0] % slot.experts)
    fail(Exit::bad_file, "{}: tensor {} has shape ({}), expected {} experts", t.file,
         escaped(t.name), fmt::join(t.shape, ", "), slot.experts);
  const int64_t outputs = t.shape.back(),
                cols = t.shape.size() == 3 ? t.shape[1] : t.shape[0] / slot.experts;
  const size_t item = row_bytes(*t.format, 1);
  RowOrder order = slot.hf_order;
  order.transposed = false;
  return matrix_for(
      slot, order, *t.format,
      [=, data = t.data](int64_t row, std::byte* dst) {
        const std::byte* from = data + (row / outputs * cols * outputs + row % outputs) * item;
        for (int64_t c = 0; c < cols; ++c)
          std::memcpy(dst + c * item, from + c * outputs * item, item);
      },
      slot.experts * outputs, cols, t.file, t.name);
}

TensorSource padded_with_first_row(const TensorSlot& slot, Format format, const std::byte* data,
                                   int64_t cols) {
  const size_t stride = row_bytes(format, cols);
  return tensor_of_rows(slot.name, format, slot.rows, cols,
                        [=, n = slot.hf_rows](int64_t row, std::byte* dst) {
                          std::memcpy(dst, data + (row < n ? row : 0) * stride, stride);
                        });
}

bool is_ternary(const SafeTensor& t, const TensorSlot& slot) {
  return t.dtype == "U8" && t.shape.size() == 2 && slot.rows > 1 && 4 * t.shape[0] == slot.rows;
}
TensorSource ternary(const TensorSlot& slot, const SafeTensor& t) {
  const int64_t quarter = t.shape[0], cols = t.shape[1];
  return tensor_of_rows(slot.name, Format::bf16, slot.rows, cols,
                        [=, data = t.data, order = slot.hf_order](int64_t row, std::byte* dst) {
                          constexpr uint16_t kValues[] = {0xbf80, 0, 0x3f80, 0x4000};
                          const int64_t theirs = order.theirs(row);
                          const std::byte* from = data + theirs % quarter * cols;
                          for (int64_t c = 0; c < cols; ++c) {
                            const int code = int(from[c]) >> 2 * (theirs / quarter) & 3;
                            std::memcpy(dst + 2 * c, &kValues[code], 2);
                          }
                        });
}

namespace {

// The mean must be known before the first row.
struct MeanSize {
  std::once_flag once;
  float inverse = 0;
};

}  // namespace

std::array<TensorSource, 2> rounded_to_ternary(const TensorSlot& slot, const SafeTensor& t) {
  const int64_t rows = t.shape[0], cols = t.shape[1];
  const auto values = [=, format = *t.format, data = t.data](int64_t row) {
    std::vector<float> x(static_cast<size_t>(cols));
    decode_plain_row(format, data + row * static_cast<int64_t>(row_bytes(format, cols)), cols,
                     x.data());
    return x;
  };
  const auto mean = std::make_shared<MeanSize>();
  const auto inverse = [=] {
    std::call_once(mean->once, [&] {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r)
        for (float v : values(r)) sum += std::fabs(v);
      mean->inverse =
          1 / std::max(static_cast<float>(sum / static_cast<double>(rows * cols)), 1e-5f);
    });
    return mean->inverse;
  };
  return {matrix_for(
              slot, slot.hf_order, Format::bf16,
              [=](int64_t row, std::byte* dst) {
                const std::vector<float> x = values(row);
                const float by = inverse();
                for (size_t c = 0; c < x.size(); ++c) {
                  const uint16_t w =
                      bf16_of_f32(std::clamp(std::nearbyint(x[c] * by), -1.0f, 1.0f));
                  std::memcpy(dst + 2 * c, &w, sizeof w);
                }
              },
              rows, cols, t.file, t.name),
          TensorSource{{slot.name + "_scale", Format::f32, 1, 1},
                       [=](int64_t, int64_t, std::byte* dst) {
                         const float scale = 1 / inverse();
                         std::memcpy(dst, &scale, sizeof scale);
                       }}};
}

TensorSource with_unit_rows(const TensorSlot& slot, Format format, const std::byte* data,
                            int64_t rows, int64_t cols) {
  const size_t stride = row_bytes(format, cols);
  return tensor_of_rows(slot.name, Format::f32, rows, cols, [=](int64_t row, std::byte* dst) {
    std::vector<float> x(static_cast<size_t>(cols));
    decode_plain_row(format, data + row * stride, cols, x.data());
    double square = 0;
    for (float v : x) square += double(v) * v;
    const double length = std::max(std::sqrt(square), 1e-12);
    for (float& v : x) v = static_cast<float>(v / length);
    std::memcpy(dst, x.data(), x.size() * sizeof(float));
  });
}

void change(TensorSource& vector, const std::function<float(float)>& of) {
  vector.read = [read = std::move(vector.read), n = vector.info.cols, of](
                    int64_t first, int64_t last, std::byte* dst) {
    read(first, last, dst);
    auto* x = reinterpret_cast<float*>(dst);
    std::transform(x, x + n, x, of);
  };
}

TensorSource stack_of(const TensorSlot& slot, std::vector<TensorSource> experts,
                      const std::string& folder) {
  if (int64_t(experts.size()) != slot.experts)
    fail(Exit::bad_file, "{}: tensor {} is there for {} experts, expected {}", folder, slot.hf,
         experts.size(), slot.experts);
  TensorInfo all = experts[0].info;
  for (const TensorSource& one : experts)
    if (one.info.format != all.format || one.info.cols != all.cols ||
        one.info.rows * slot.experts != slot.rows)
      fail(Exit::bad_file,
           "{}: tensor {} has {} ({}, {}) and {} ({}, {}), expected {} rows for "
           "each expert and one format",
           folder, slot.hf, info(all.format).name, all.rows, all.cols, info(one.info.format).name,
           one.info.rows, one.info.cols, slot.rows / slot.experts);
  all.name = slot.name, all.rows = slot.rows;
  const int64_t strips = slot.rows / slot.experts / kStrip;
  const size_t bytes = strip_bytes(all.format, all.cols);
  return {all, [=, experts = std::move(experts)](int64_t first, int64_t last, std::byte* dst) {
            for (int64_t next; first < last; first = next) {
              const int64_t expert = first / strips, begin = expert * strips;
              next = std::min(last, begin + strips);
              experts[size_t(expert)].read(first - begin, next - begin, dst);
              dst += size_t(next - first) * bytes;
            }
          }};
}

}  // namespace chaski
