// GGUF's words and chaski's, side by side: the one list that import_gguf.cpp and export_gguf.cpp
// both read.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

enum class Kind { text, texts, integer, integers, number, numbers, flag };
std::string_view kind_name(Kind kind);
bool is_kind(const Value& value, Kind kind);

struct KeyPair {
  std::string ours, theirs;
  Kind kind;
  bool required;  // in a file that has tensors
};

// Every pair that holds for this architecture. Architectures other than llama and gpt2 have no
// hyperparameters chaski would understand, so theirs pass through untouched.
std::vector<KeyPair> gguf_keys(const std::string& architecture);
bool is_known_architecture(std::string_view architecture);

// GGUF keys and tensors without a word in chaski, the other way round.
constexpr std::string_view kForeignPrefix = "gguf.";

// "blk.3.attn_q.weight" <-> "layer.3.attn_q"; a name that would not come back the same gets the
// foreign prefix.
std::string our_tensor_name(std::string_view theirs);
std::string gguf_tensor_name(std::string_view ours);

}  // namespace chaski
