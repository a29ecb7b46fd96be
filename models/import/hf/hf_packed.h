// Weights of a Hugging Face folder that are packed integers with scales and zero points: GPTQ (2, 4
// and 8 bits) and AWQ (4 bits, the gemm layout). The several tensors of a weight become one, in a
// block format that has exactly the same values:
//
//   w = scale * (q - zero), scale f16, for groups of columns.
//
// The format is q4_0 if q - zero is in -8..7 (symmetric 4 bits), q5_0 if it is in -16..15 (4 bits
// with zero points), q8 if it is in -128..127. Scaled floats are read by hf_scaled.h.
#pragma once
#include <string>
#include <vector>

#include "models/import/hf/hf_config.h"
#include "models/import/hf/safetensors.h"
#include "models/import/row_tensors.h"

namespace chaski {

// The end of a message about weights that cannot be read: what to do.
constexpr std::string_view kUnpackedInstead =
    "or a folder saved unpacked (transformers: model.dequantize(), save_pretrained), which "
    "chaski quantize makes small again";

struct PackedTensor {
  std::string name, file;  // the name that a plain weight would have
  Format format;
  int64_t rows, cols;
  RowReader read;
  // The file's column for each of ours, if the columns were sorted; empty: the same order.
  std::vector<float> order = {};
};

// Removes the packed weights of any method from `tensors` and returns them, if the folder has a
// quantization_config. Throws Error(bad_file), with advice, for a method or layout that no block
// format can represent.
std::vector<PackedTensor> take_packed(const HfConfig& read, std::vector<SafeTensor>& tensors);

}  // namespace chaski
