// Weights of a Hugging Face folder that are codes of 4 or 8 bits with scales, other than GPTQ and
// AWQ (hf_packed.h):
//
//   bitsandbytes                NF4 and FP4, whose scales may be quantized too; 8-bit integers with
//                               a scale a row (LLM.int8)
//   fp8, fbgemm_fp8,            e4m3 or 8-bit integers with scales for blocks, rows or the whole
//   compressed-tensors,         tensor, also packed in words; NVFP4 with a scale for the whole
//   modelopt                    tensor.
//   mxfp4                       gpt-oss's experts
//
// The several tensors of a weight become one, of format nf4, fp4, f8s, q4_0, q8, q8f, nvfp4s or
// mxfp4, with the same values. Settings for rounding activations are ignored because chaski does
// not round them that way.
#pragma once
#include <string>
#include <vector>

#include "models/import/hf/hf_packed.h"
#include "models/import/json_file.h"

namespace chaski {

// Remove the packed weights from `tensors` and return them. Throw Error(bad_file).
std::vector<PackedTensor> take_bitsandbytes(std::vector<SafeTensor>& tensors);
std::vector<PackedTensor> take_mxfp4(std::vector<SafeTensor>& tensors);
// `config` is the folder's quantization_config.
std::vector<PackedTensor> take_scaled(const Json& config, std::vector<SafeTensor>& tensors);

}  // namespace chaski
