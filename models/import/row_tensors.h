// Tensors over rows that lie in a mapped file, as importers find them: row layout in, the strips of
// model_source.h out. Not for parsing: whoever calls has already checked that the bytes are there.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "models/facts.h"

namespace chaski {

// Writes one row in row layout to dst. Called from several threads at once.
using RowReader = std::function<void(int64_t row, std::byte* dst)>;

// Rows one after another from `data` on. One row makes a vector, which memory holds as f32 whatever
// the file has: every format's values are exact in f32.
TensorSource tensor_over(std::string name, Format format, const std::byte* data, int64_t rows,
                         int64_t cols);

// Rows that have to be put together first (permuted, transposed, requantized layouts). For rows ==
// 1 the reader writes `format` and the same conversion to f32 follows.
TensorSource tensor_of_rows(std::string name, Format format, int64_t rows, int64_t cols,
                            RowReader reader);

// A tensor of a foreign file for `slot`, whose rows lie there in `order`; `rows` and `cols` are
// ours. Throws Error(bad_file) where the rows are not those of all heads; `file` and `theirs` are
// for the line.
TensorSource tensor_for(const TensorSlot& slot, const RowOrder& order, Format format,
                        const std::byte* data, int64_t rows, int64_t cols, const std::string& file,
                        const std::string& theirs);
// A matrix whose rows are read one by one, in their order.
TensorSource matrix_for(const TensorSlot& slot, const RowOrder& order, Format format,
                        RowReader reader, int64_t rows, int64_t cols, const std::string& file,
                        const std::string& theirs);

}  // namespace chaski
