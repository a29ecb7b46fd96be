// Writes a plain Hugging Face folder for vLLM, SGLang and transformers: all weights in bf16, or the
// matrices of the layers in fp8.
//
//   bf16  Each weight is rounded to the nearest bf16, ties to even.
//   fp8   A matrix has e4m3 codes (float8_e4m3fn) and a scale for each row: a power of two, unless
//         the source has one scale for the row, which is kept.
//         config.json describes it as compressed-tensors does (neuralmagic/compressed-tensors,
//         README): format "float-quantized", strategy "channel", and activations rounded to fp8
//         token by token while the model runs. vLLM and SGLang multiply it on GPUs with fp8 without
//         unpacking, and older GPUs leave the activations in 16 bits. transformers loads it with
//         the package compressed-tensors. chaski reads it as f8s.
//
// In both, vectors that bf16 cannot represent stay f32, and so no norm or bias changes. With fp8,
// these are bf16: the embedding, the head, routers, and matrices whose columns are not a multiple
// of 64.
#pragma once
#include <string>
#include <vector>

#include "models/import/hf/folder_files.h"

namespace chaski {

enum class FloatLayout { bf16, fp8 };

struct FloatFolder : WrittenFolder {
  int64_t weights = 0, rounded = 0;  // in bf16, and those of them that were rounded
  // fp8 only. The errors are relative and squared.
  size_t matrices = 0, exact = 0;  // exact: those of them without an error
  double error = 0, worst_error = 0;
  std::string worst;              // the matrix with the largest error
  std::vector<std::string> wide;  // matrices that are bf16 because of the number of their columns
};

// A Hugging Face folder of any architecture keeps its config.json and its tensors' names; packed
// weights are unpacked. Of other files, only llama (Mistral too), qwen2 and qwen3 have a known
// folder. Throws Error(bad_file | usage | io). folder_files.h says what is written in which order.
FloatFolder write_floats(const std::string& folder, const ModelSource& source, FloatLayout layout,
                         const OnWritten& done, const std::vector<NamedText>& tokenizer = {},
                         uint64_t shard_bytes = kShardBytes);

}  // namespace chaski
