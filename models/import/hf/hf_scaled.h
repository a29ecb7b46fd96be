// Weights that a Hugging Face folder keeps as codes of 4 or 8 bits with scales beside them, other
// than GPTQ's and AWQ's (hf_packed.h):
//
//   bitsandbytes                NF4 and FP4, their scales packed once more or not; integers of 8
//                               bits with a scale a row (LLM.int8)
//   fp8, fbgemm_fp8,            e4m3, or integers of 8 bits, with scales for blocks, rows or the
//   compressed-tensors,         whole, also packed in words; NVFP4 with its scale for the whole
//   modelopt
//
// What a name has in several tensors becomes one, of nf4, fp4, f8s, q4_0, q8, q8f or nvfp4s, of the
// same numbers. What is said about activations is passed over, because
// chaski does not round them so.
#pragma once
#include <string>
#include <vector>

#include "models/import/hf/hf_packed.h"
#include "models/import/json_file.h"

namespace chaski {

// Take the packed weights out of `tensors`. Throw Error(bad_file).
std::vector<PackedTensor> take_bitsandbytes(std::vector<SafeTensor>& tensors);
// `config`: the folder's quantization_config.
std::vector<PackedTensor> take_scaled(const Json& config, std::vector<SafeTensor>& tensors);

}  // namespace chaski
