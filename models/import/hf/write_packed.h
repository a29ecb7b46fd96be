// A Hugging Face folder as GPTQ or AWQ packs it, which transformers and vLLM load: hf_packed.h
// backwards. No weight changes: what has no exact image there is refused by name.
//
//   q4_0, q5_0, q8, and q4_1 and q5_1 whose minima are whole multiples of their scales: codes of 4
//   or 8 bits under an f16 scale for 32 columns, with whole zero points. All have 8 bits if one of
//   them needs them (GPTQ alone has 8).
//   All else, and the embedding and the head whatever they are in: floats, of the fewest bits that
//   hold each value.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

enum class PackedLayout { gptq, awq };

struct PackedFolder {
  int bits = 4;
  size_t packed = 0;      // weights
  std::string why_eight;  // the first tensor that needs 8 bits; empty: all have 4
  bool has_tokenizer = false;
  uint64_t bytes = 0;  // of all weights
  // Tensors that take more bytes than they took.
  struct Grown {
    std::string name, from, to;  // formats
    uint64_t before = 0, after = 0;
  };
  std::vector<Grown> grown;
  std::vector<std::string> stayed;  // tokenizer files and the like that were there before
};

struct NamedText {
  std::string name, text;
};

// Of llama (Mistral too), qwen2 and qwen3. Writes config.json last, so that a folder without one is
// no model yet; refuses one that has one, or files that are no part of one. Tokenizer files are
// copied where the source is a folder that has them, else `tokenizer` is written; one that is there
// already stays as it is. Throws Error(bad_file | usage | io). `done` is told bytes that are
// written.
PackedFolder write_packed(const std::string& folder, const ModelSource& source, PackedLayout layout,
                          const std::function<void(uint64_t bytes)>& done,
                          const std::vector<NamedText>& tokenizer = {});

}  // namespace chaski
