// Weights that a Hugging Face folder keeps as packed integers with scales and zero points beside
// them: GPTQ (2, 4 and 8 bits) and AWQ (4 bits, the gemm layout). What a name has in several
// tensors becomes one here, in a block format that says the same numbers to the bit:
//
//   w = scale * (q - zero), scale f16, for groups of columns
//
// which is q4_0 if q - zero lies in -8..7 (symmetric 4 bits), q5_0 in -16..15 (4 bits with zero
// points), q8 in -128..127. Floats under scales are hf_scaled.h's.
#pragma once
#include <string>
#include <vector>

#include "models/import/hf/safetensors.h"
#include "models/import/row_tensors.h"

namespace chaski {

// What to do where none can be taken: the end of an error line.
constexpr std::string_view kUnpackedInstead =
    "or a folder saved unpacked (transformers: model.dequantize(), save_pretrained), which "
    "chaski quantize makes small again";

struct PackedTensor {
  std::string name, file;  // the name is the one a plain weight would have
  Format format;
  int64_t rows, cols;
  RowReader read;
  // Which of a weight's columns ours are, where they had to be sorted; empty: they are the same.
  std::vector<float> order = {};
};

// Takes the packed weights out of `tensors`, if the folder's config.json has a quantization_config,
// whatever its method. Throws Error(bad_file) for a method or a layout that no block format holds,
// with what to do.
std::vector<PackedTensor> take_packed(const std::string& folder, std::vector<SafeTensor>& tensors);

}  // namespace chaski
