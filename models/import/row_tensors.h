// Tensors over rows of a mapped file, for importers: row layout in, the strips of model_source.h
// out. The caller has already checked that the bytes are there.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "models/facts.h"

namespace chaski {

// Writes one row in row layout to dst. Several threads may call it at the same time.
using RowReader = std::function<void(int64_t row, std::byte* dst)>;

// Rows one after another from `data` on. One row makes a vector, which becomes f32: the values of
// every format are exact in f32.
TensorSource tensor_over(std::string name, Format format, const std::byte* data, int64_t rows,
                         int64_t cols);

// Rows that must be assembled first (permuted, transposed or requantized layouts). If rows == 1,
// the reader writes `format`, and the conversion to f32 follows.
TensorSource tensor_of_rows(std::string name, Format format, int64_t rows, int64_t cols,
                            RowReader reader);

// A tensor of a foreign file for `slot`, whose rows are in `order` there; `rows` and `cols` are
// ours. Throws Error(bad_file) if the number of rows does not fit; `file` and `theirs` are for the
// message.
TensorSource tensor_for(const TensorSlot& slot, const RowOrder& order, Format format,
                        const std::byte* data, int64_t rows, int64_t cols, const std::string& file,
                        const std::string& theirs);
// A matrix that is read row by row, in file order.
TensorSource matrix_for(const TensorSlot& slot, const RowOrder& order, Format format,
                        RowReader reader, int64_t rows, int64_t cols, const std::string& file,
                        const std::string& theirs);

}  // namespace chaski
