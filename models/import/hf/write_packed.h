// Writes a Hugging Face folder packed like GPTQ or AWQ, which transformers and vLLM load; the
// inverse of hf_packed.h. No weight changes: a weight without an exact representation is refused by
// name.
//
//   Packed: q4_0, q5_0, q8, and q4_1 and q5_1 whose minima are whole multiples of their scales. The
//   codes have 4 or 8 bits, an f16 scale for 32 columns, and whole zero points. All weights get 8
//   bits if one of them needs 8 (only GPTQ has 8).
//   Floats: all other tensors, and always the embedding and the head, with the fewest bits that
//   represent each value.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/import/hf/folder_files.h"

namespace chaski {

enum class PackedLayout { gptq, awq };

struct PackedFolder : WrittenFolder {
  int bits = 4;
  size_t packed = 0;      // number of weights
  std::string why_eight;  // the first tensor that needs 8 bits; empty: all have 4
  // A tensor that takes more bytes than before.
  struct Grown {
    std::string name, from, to;  // from and to are formats
    uint64_t before = 0, after = 0;
  };
  std::vector<Grown> grown;
};

// For llama (Mistral too), qwen2 and qwen3. Throws Error(bad_file | usage | io). folder_files.h
// says what is written in which order.
PackedFolder write_packed(const std::string& folder, const ModelSource& source, PackedLayout layout,
                          const OnWritten& done, const std::vector<NamedText>& tokenizer = {});

}  // namespace chaski
