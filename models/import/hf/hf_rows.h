// Tensors of a Hugging Face folder whose rows are not those of the file: they are transposed,
// unpacked, rounded or stacked while they are read.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "models/facts.h"
#include "models/import/hf/safetensors.h"

namespace chaski {

// From a tensor (experts, in, out) or (experts * in, out).
TensorSource transposed_experts(const TensorSlot& slot, const SafeTensor& t);

// The rows of the file, and its first row again for each of the slot's further rows.
TensorSource padded_with_first_row(const TensorSlot& slot, Format format, const std::byte* data,
                                   int64_t cols);

// BitNet's packing: -1, 0 and 1 as two bits, four rows in one; the first quarter of the rows has
// the lowest bits.
bool is_ternary(const SafeTensor& t, const TensorSlot& slot);
TensorSource ternary(const TensorSlot& slot, const SafeTensor& t);

// BitNet trains float matrices and rounds them at each multiplication to -1, 0 or 1 times their
// mean magnitude. Returns the matrix and its scale.
std::array<TensorSource, 2> rounded_to_ternary(const TensorSlot& slot, const SafeTensor& t);

// Each row divided by its length. The result is f32: dividing a value of the given format would
// need rounding in that format.
TensorSource with_unit_rows(const TensorSlot& slot, Format format, const std::byte* data,
                            int64_t rows, int64_t cols);

// Replaces every number x of a vector by of(x).
void change(TensorSource& vector, const std::function<float(float)>& of);

// Experts that the file has one by one, one below the other. Throws Error(bad_file) if one is
// missing or differs in shape or format; `folder` is for the message.
TensorSource stack_of(const TensorSlot& slot, std::vector<TensorSource> experts,
                      const std::string& folder);

}  // namespace chaski
