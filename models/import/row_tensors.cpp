#include "models/import/row_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ggml-like-tensor/base/error.h"

namespace chaski {
namespace {

void write_f32(Format format, const std::byte* row, int64_t cols, std::byte* dst) {
  std::vector<float> values(cols);
  decode_plain_row(format, row, cols, values.data());
  std::memcpy(dst, values.data(), cols * sizeof(float));
}

int rows_of_strip(int64_t strip, int64_t rows) {
  return static_cast<int>(std::min<int64_t>(kStrip, rows - strip * kStrip));
}

}  // namespace

TensorSource tensor_over(std::string name, Format format, const std::byte* data, int64_t rows,
                         int64_t cols) {
  const size_t stride = row_bytes(format, cols);
  if (rows == 1) {
    return {{std::move(name), Format::f32, 1, cols},
            [=](int64_t, int64_t, std::byte* dst) { write_f32(format, data, cols, dst); }};
  }
  return {{std::move(name), format, rows, cols}, [=](int64_t first, int64_t last, std::byte* dst) {
            for (int64_t s = first; s < last; ++s, dst += strip_bytes(format, cols))
              pack_strip(format, data + s * kStrip * stride, stride, rows_of_strip(s, rows), cols,
                         dst);
          }};
}

TensorSource tensor_of_rows(std::string name, Format format, int64_t rows, int64_t cols,
                            RowReader reader) {
  const size_t stride = row_bytes(format, cols);
  if (rows == 1) {
    return {{std::move(name), Format::f32, 1, cols}, [=](int64_t, int64_t, std::byte* dst) {
              std::vector<std::byte> row(stride);
              reader(0, row.data());
              write_f32(format, row.data(), cols, dst);
            }};
  }
  return {{std::move(name), format, rows, cols}, [=](int64_t first, int64_t last, std::byte* dst) {
            std::vector<std::byte> strip(kStrip * stride);
            for (int64_t s = first; s < last; ++s, dst += strip_bytes(format, cols)) {
              const int n = rows_of_strip(s, rows);
              for (int r = 0; r < n; ++r) reader(s * kStrip + r, strip.data() + r * stride);
              pack_strip(format, strip.data(), stride, n, cols, dst);
            }
          }};
}

namespace {

void expect_rows(const TensorSlot& slot, const RowOrder& order, int64_t rows, int64_t cols,
                 const std::string& file, const std::string& theirs) {
  const bool matrix = rows > 1;
  const int64_t ours = slot.rows > 1 ? slot.rows : slot.cols, found = matrix ? rows : cols;
  if (order.whole > 0 && found != order.whole)
    fail(Exit::bad_file, "{}: tensor {} has {} rows, expected {} for all of its parts", file,
         escaped(theirs), found, order.whole);
  if (order.across > 0 && order.whole == 0 && found != ours)
    fail(Exit::bad_file, "{}: tensor {} has {} numbers, expected {} rows of {}", file,
         escaped(theirs), found, order.down, order.across);
  if (order.whole == 0 && found != ours)
    fail(Exit::bad_file, "{}: tensor {} has {} rows, expected {} heads of {}", file,
         escaped(theirs), found, ours / order.head, order.head);
  if (matrix != (slot.rows > 1))
    fail(Exit::bad_file, "{}: tensor {} is a {}, expected a {}", file, escaped(theirs),
         matrix ? "matrix" : "vector", matrix ? "vector" : "matrix");
}

// The runs of a file's rows, each transposed. Floats keep their format; blocks cannot be turned, so
// they become f32. `read` gives a row of the file.
TensorSource turned(const TensorSlot& slot, const RowOrder& order, Format format, RowReader read,
                    int64_t rows, int64_t cols, const std::string& file,
                    const std::string& theirs) {
  const int64_t matrices = order.whole / order.pitch;
  if (rows != order.whole || cols * matrices != slot.rows)
    fail(Exit::bad_file, "{}: tensor {} has shape ({}, {}), expected ({}, {})", file,
         escaped(theirs), rows, cols, order.whole, slot.rows / matrices);
  const Format made = info(format).block == 1 ? format : Format::f32;
  const size_t item = row_bytes(made, 1), stride = size_t(order.run) * item;
  return {{slot.name, made, slot.rows, order.run},
          [=, read = std::move(read)](int64_t first, int64_t last, std::byte* dst) {
            std::vector<std::byte> matrix(size_t(order.run * cols) * item), row, strip;
            strip.resize(kStrip * stride), row.resize(row_bytes(format, cols));
            int64_t have = -1;  // the number of `matrix`
            for (int64_t s = first; s < last; ++s, dst += strip_bytes(made, order.run)) {
              const int64_t wanted = s * kStrip / cols;
              for (int64_t i = 0; i < order.run && wanted != have; ++i) {
                std::byte* to = matrix.data() + size_t(i * cols) * item;
                read(order.theirs(wanted * order.run + i), row.data());
                if (made == format)
                  std::memcpy(to, row.data(), row.size());
                else
                  write_f32(format, row.data(), cols, to);
              }
              have = wanted;
              for (int64_t r = 0; r < kStrip; ++r)
                for (int64_t i = 0; i < order.run; ++i)
                  std::memcpy(strip.data() + size_t(r) * stride + size_t(i) * item,
                              matrix.data() + size_t(i * cols + s * kStrip % cols + r) * item,
                              item);
              pack_strip(made, strip.data(), stride, kStrip, order.run, dst);
            }
          }};
}

}  // namespace

TensorSource tensor_for(const TensorSlot& slot, const RowOrder& order, Format format,
                        const std::byte* data, int64_t rows, int64_t cols, const std::string& file,
                        const std::string& theirs) {
  if (order.plain() || (order.transposed && rows == 1))
    return tensor_over(slot.name, format, data, rows, cols);
  if (order.transposed) {
    if (order.whole > 0) expect_rows(slot, order, rows, cols, file, theirs);
    const size_t item = row_bytes(format, 1);
    const auto column = [=, first = order.first](int64_t row, std::byte* dst) {
      for (int64_t c = 0; c < cols; ++c)
        std::memcpy(dst + c * item, data + (c * rows + first + row) * item, item);
    };
    return tensor_of_rows(slot.name, format, order.whole > 0 ? slot.rows : rows, cols, column);
  }
  if (order.turned) {
    const size_t stride = row_bytes(format, cols);
    return turned(
        slot, order, format,
        [=](int64_t row, std::byte* dst) { std::memcpy(dst, data + size_t(row) * stride, stride); },
        rows, cols, file, theirs);
  }
  expect_rows(slot, order, rows, cols, file, theirs);
  const bool matrix = rows > 1;
  const int64_t ours = slot.rows > 1 ? slot.rows : slot.cols;
  // A weight by rows, a bias by elements.
  const size_t item = row_bytes(format, matrix ? cols : 1);
  if (order.head == 0 && order.run == 0 && order.across == 0)
    return tensor_over(slot.name, format, data + order.first * item, slot.rows,
                       matrix ? cols : ours);
  const auto copy = [=](int64_t row, std::byte* dst) {
    std::memcpy(dst, data + order.theirs(row) * item, item);
  };
  if (matrix) return tensor_of_rows(slot.name, format, ours, cols, copy);
  return tensor_of_rows(slot.name, format, 1, ours, [=](int64_t, std::byte* dst) {
    for (int64_t i = 0; i < ours; ++i) copy(i, dst + i * item);
  });
}

TensorSource matrix_for(const TensorSlot& slot, const RowOrder& order, Format format,
                        RowReader reader, int64_t rows, int64_t cols, const std::string& file,
                        const std::string& theirs) {
  if (order.transposed || rows == 1 || slot.rows == 1)
    fail(Exit::bad_file, "{}: tensor {} is packed, expected a plain one here", file,
         escaped(theirs));
  if (order.plain()) return tensor_of_rows(slot.name, format, rows, cols, std::move(reader));
  if (order.turned) return turned(slot, order, format, std::move(reader), rows, cols, file, theirs);
  expect_rows(slot, order, rows, cols, file, theirs);
  return tensor_of_rows(slot.name, format, slot.rows, cols,
                        [order, reader = std::move(reader)](int64_t row, std::byte* dst) {
                          reader(order.theirs(row), dst);
                        });
}

}  // namespace chaski
